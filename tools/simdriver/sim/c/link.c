#include "sim.h"

/*
 * The linker takes PTX. Its image is the pieces one after the other. Everything
 * else counts as broken.
 */
struct link {
	CUlinkState handle;
	struct link *next;
	struct context *context;
	struct log log;
	char *text;
	size_t size; /* of the text without its last zero byte */
	bool complete;
	int thread; /* that created it: CUDA's linker crashes on another one */
	struct module all; /* what the pieces have */
};

static struct link *links;

CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values, CUlinkState *handle)
{
	ENTER(CURRENT);
	struct log log;
	struct link *l;
	CUresult r = handle ? jit_options(n, options, values, &log) : INVALID_VALUE;

	if (r)
		return r;
	l = calloc(1, sizeof *l);
	l->context = current();
	l->log = log;
	l->text = calloc(1, 1);
	l->thread = os_thread();
	l->next = links;
	links = l;
	*handle = l->handle = handle_new(LINKER, l);
	return OK;
}

/* found returns a linker, or NULL. */
static struct link *found(CUlinkState handle)
{
	struct link *l = handle_get(LINKER, handle);

	if (l && l->thread != os_thread())
		crash("a linker is used on another thread than the one that created it");
	return l;
}

static CUresult failed(struct link *l, CUresult code, const char *what, const char *name)
{
	if (l->log.text && l->log.size)
		snprintf(l->log.text, l->log.size, "simulated driver: %s: %s", name ? name : "a piece without a name", what);
	return code;
}

static bool defined(struct module *m, const char *name)
{
	for (int i = 0; i < m->nfunctions; i++)
		if (!strcmp(m->functions[i].name, name))
			return true;
	return false;
}

/* take notes what a piece defines, and tells whether another one defines the same. */
static bool take(struct link *l, struct module *m)
{
	bool twice = false;

	for (int i = 0; i < m->nfunctions; i++) {
		twice |= defined(&l->all, m->functions[i].name);
		function_add(&l->all, m->functions[i].name);
	}
	for (int i = 0; i < m->nglobals; i++) {
		if (!m->globals[i].visible)
			continue;
		twice |= !!global_named(&l->all, m->globals[i].name);
		global_add(&l->all, m->globals[i].name, m->globals[i].size);
	}
	return twice;
}

enum { PTX = 1, TYPES = 6 };

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t size, const char *name,
	unsigned n, CUjit_option *options, void **values)
{
	ENTER(0);
	struct link *l = found(handle);
	struct module m = {0};
	bool twice;
	int line;
	CUresult r;

	(void)n, (void)options, (void)values;
	if (!l)
		return INVALID_HANDLE;
	if (!data || !size || type >= TYPES || l->complete)
		return INVALID_VALUE;
	if (type != PTX)
		return failed(l, INVALID_IMAGE, "not PTX", name);
	if (((char *)data)[size - 1] || !ptx_looks(data))
		return failed(l, INVALID_PTX, "not PTX", name);
	r = ptx_read(&m, data, &line);
	twice = !r && take(l, &m);
	contents_free(&m);
	if (r)
		return failed(l, r, r == NEWER_PTX ? "newer PTX than the driver knows" : "not understood", name);
	if (twice)
		return failed(l, INVALID_IMAGE, "defines a function or a variable for the second time", name);
	size = strlen(data);
	l->text = realloc(l->text, l->size + size + 1);
	memcpy(l->text + l->size, data, size + 1);
	l->size += size;
	return OK;
}

CUresult cuLinkComplete(CUlinkState handle, void **image, size_t *size)
{
	ENTER(0);
	struct link *l = found(handle);

	if (!l)
		return INVALID_HANDLE;
	if (!image || l->complete || !l->size)
		return INVALID_VALUE;
	l->complete = true;
	*image = l->text;
	if (size)
		*size = l->size + 1;
	return OK;
}

static void end(struct link *l)
{
	struct link **at = &links;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	handle_end(l->handle);
	contents_free(&l->all);
	free(l->text);
	free(l);
}

CUresult cuLinkDestroy(CUlinkState handle)
{
	ENTER(DEAD);
	struct link *l = found(handle);

	if (!l)
		return INVALID_HANDLE;
	end(l);
	return sim.dead;
}

void links_end(struct context *c)
{
	for (struct link *l = links, *next; l; l = next) {
		next = l->next;
		if (l->context == c) {
			live_lost(1);
			end(l);
		}
	}
}
