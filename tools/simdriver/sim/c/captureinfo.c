#include "sim.h"

/* tell keeps a copy of what the next node of a stream waits for, which the program may look at. */
static void tell(struct stream *s)
{
	free(s->told);
	free(s->told_data);
	s->told = calloc(s->deps.n + 1, sizeof *s->told);
	s->told_data = calloc(s->deps.n + 1, sizeof *s->told_data);
	for (int i = 0; i < s->deps.n; i++) {
		s->told[i] = s->deps.list[i].node->handle;
		s->told_data[i] = s->deps.list[i].data;
	}
}

static bool plain(const struct edges *e)
{
	for (int i = 0; i < e->n; i++)
		if (!edge_plain(&e->list[i].data))
			return false;
	return true;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *n)
{
	struct stream *s;
	CUresult r = stream_get(handle, &s);

	if (!r && s == s->context->legacy && legacy_waits(s->context))
		r = CAPTURE_IMPLICIT; /* and the capture goes on */
	if (r)
		return r;
	if (!status || (data && !nodes))
		return INVALID_VALUE;
	*status = !s->capture ? 0 : s->capture->lost ? 2 : 1;
	if (*status != 1)
		return OK;
	if (nodes && !data && !plain(&s->deps))
		return LOSSY_QUERY;
	tell(s);
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = graph_handle(s->capture->graph);
	if (nodes)
		*nodes = s->told;
	if (data)
		*data = s->told_data;
	if (n)
		*n = s->deps.n;
	return OK;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = stream);
	return info(stream, status, id, 0, 0, 0, 0);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **nodes, size_t *n)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = stream);
	return info(stream, status, id, graph, nodes, 0, n);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *n)
{
	ENTER(CALLBACK, .does = LOOKS, .stream = stream);
	return info(stream, status, id, graph, nodes, data, n);
}

enum { ADD, SET_DEPENDENCIES };

static CUresult update(CUstream handle, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n, unsigned flags)
{
	struct stream *s;
	struct edges edges = {0};
	CUresult r = stream_get(handle, &s);

	if (r)
		return r;
	if (!s->capture)
		return ILLEGAL_STATE;
	if (s->capture->lost)
		return CAPTURE_INVALIDATED;
	if (flags > SET_DEPENDENCIES || (r = edges_read(&edges, s->capture->graph, nodes, data, n)))
		return INVALID_VALUE;
	if (flags == SET_DEPENDENCIES)
		edges_clear(&s->deps);
	edges_add_all(&s->deps, &edges);
	edges_clear(&edges);
	return OK;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t n, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return update(stream, nodes, 0, n, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return update(stream, nodes, data, n, flags);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
	size_t n, CUstreamCaptureMode mode)
{
	ENTER(0, .does = BEGINS, .stream = stream, .graph = graph, .global = !mode);
	struct graph *g = graph_get(graph);
	struct edges edges = {0};
	CUresult r;

	if (g && g->capture)
		return ILLEGAL_STATE;
	if (!g || edges_read(&edges, g, nodes, data, n))
		return INVALID_VALUE;
	r = capture_begin(stream, mode, g, &edges);
	edges_clear(&edges);
	return r;
}
