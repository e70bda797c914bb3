#include "sim.h"

enum { WINDOW = 1, POLICY = 3, PRIORITY = 8, DOMAIN_MAP = 9, DOMAIN = 10 };
enum { MAX_WINDOW = 109, DOMAIN_COUNT = 126 }; /* attributes of devices */
enum { PERSISTING = 2 };

static const unsigned ids[STREAM_ATTRIBUTES] = {WINDOW, POLICY, PRIORITY, DOMAIN_MAP, DOMAIN};

static CUstreamAttrValue *find(struct stream *s, unsigned id)
{
	for (int i = 0; i < STREAM_ATTRIBUTES; i++)
		if (ids[i] == id)
			return &s->attributes[i];
	return 0;
}

void attributes_begin(struct stream *s)
{
	find(s, POLICY)->policy = -1u; /* none was set */
	find(s, PRIORITY)->priority = s->priority;
	find(s, DOMAIN_MAP)->domains.remote = 1;
}

/* size is that of the union's member. */
static size_t size(unsigned id)
{
	const CUstreamAttrValue *v = 0;

	return id == WINDOW ? sizeof v->window : id == DOMAIN_MAP ? sizeof v->domains : sizeof v->policy;
}

bool attribute_valid(unsigned id, const CUstreamAttrValue *v, int device)
{
	unsigned domains = device_attribute(DOMAIN_COUNT, device);

	switch (id) {
	case WINDOW:
		return v->window.size <= (size_t)device_attribute(MAX_WINDOW, device) && v->window.ratio >= 0 && v->window.ratio <= 1
			&& v->window.hit <= PERSISTING && v->window.miss < PERSISTING;
	case POLICY:
		return v->policy >= 1 && v->policy <= 4;
	case PRIORITY:
		return true; /* it is clamped */
	case DOMAIN_MAP:
		return v->domains.normal < domains && v->domains.remote < domains;
	default:
		return v->domain <= 1;
	}
}

/* looked finds a stream whose attributes are read or set: on the legacy one, that ends the captures of blocking streams. */
static CUresult looked(CUstream handle, struct stream **s)
{
	CUresult r = stream_get(handle, s);

	return r || *s != (*s)->context->legacy ? r : on_legacy((*s)->context);
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value)
{
	ENTER(0, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUstreamAttrValue *v;
	CUresult r = looked(handle, &s);

	if (r)
		return r;
	if (!value || !(v = find(s, id)))
		return INVALID_VALUE;
	memcpy(value, v, size(id));
	return OK;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	ENTER(0, .does = LOOKS, .stream = handle);
	struct stream *s;
	CUstreamAttrValue *v;
	CUresult r = looked(handle, &s);

	if (r)
		return r;
	if (!value || !(v = find(s, id)) || !attribute_valid(id, value, s->context->device))
		return INVALID_VALUE;
	memcpy(v, value, size(id));
	v = find(s, PRIORITY);
	s->priority = v->priority = v->priority > 0 ? 0 : v->priority < -5 ? -5 : v->priority;
	return OK;
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	ENTER(0, .does = LOOKS, .stream = to);
	struct stream *a, *b;
	CUresult r = looked(to, &a);

	if (!r)
		r = looked(from, &b);
	if (r)
		return r;
	if (a->context != b->context || a->green != b->green)
		return INVALID_VALUE;
	memcpy(a->attributes, b->attributes, sizeof a->attributes);
	a->priority = b->priority;
	return OK;
}
