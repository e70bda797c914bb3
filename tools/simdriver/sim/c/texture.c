#include <math.h>

#include "sim.h"

/*
 * Textures of float numbers in one or two dimensions can be read, of their first
 * channel, and surfaces of such numbers written.
 */
static struct texture *textures;

enum { OF_ARRAY, OF_MIPMAP, OF_LINEAR, OF_PITCHED };
enum { WRAP, CLAMP, MIRROR, BORDER };
enum { INTEGERS = 1, NORMALIZED = 2 };
#define SURFACE_LDST 2
#define FLOAT 0x20

static CUresult describe_array(CUarray handle, struct texture *t)
{
	struct array *a;
	CUresult r = array_get(handle, &a);

	if (r)
		return r;
	if (a->depth)
		return NOT_SUPPORTED; /* here */
	t->memory = a->block->address;
	t->width = a->width;
	t->height = a->height ? a->height : 1;
	t->pitch = a->width * a->element;
	t->format = a->format;
	t->channels = a->channels;
	return OK;
}

static CUresult source_of(const CUDA_RESOURCE_DESC *r, struct texture *t)
{
	switch (r->type) {
	case OF_ARRAY:
		return describe_array(r->array, t);
	case OF_LINEAR:
		t->memory = r->linear.at;
		t->format = r->linear.format;
		t->channels = r->linear.channels;
		t->height = 1;
		t->pitch = r->linear.size;
		if (!format_size(t->format) || !t->channels)
			return INVALID_VALUE;
		t->width = r->linear.size / (format_size(t->format) * t->channels);
		break;
	case OF_PITCHED:
		t->memory = r->pitched.at;
		t->format = r->pitched.format;
		t->channels = r->pitched.channels;
		t->width = r->pitched.width;
		t->height = r->pitched.height;
		t->pitch = r->pitched.pitch;
		if (t->pitch % 32)
			return INVALID_VALUE;
		break;
	default:
		return NOT_SUPPORTED; /* here */
	}
	if (t->memory % 512 || !t->width || !t->height || !usable(t->memory, (t->height - 1) * t->pitch + t->width * format_size(t->format) * t->channels, "a texture of"))
		return INVALID_VALUE;
	return OK;
}

static void keep(enum kind kind, const struct texture *about, unsigned long long *handle)
{
	struct texture *t = malloc(sizeof *t);

	*t = *about;
	t->context = current();
	t->handle = *handle = (uintptr_t)handle_new(kind, t);
	t->next = textures;
	textures = t;
}

CUresult cuTexObjectCreate(CUtexObject *handle, const CUDA_RESOURCE_DESC *r, const CUDA_TEXTURE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view)
{
	ENTER(CURRENT);
	struct texture about = {0};
	CUresult error = unsafe_call();

	if (error)
		return error;
	if (!handle || !r || !d || r->flags || d->address[0] > BORDER || d->address[1] > BORDER || d->filter > 1)
		return INVALID_VALUE;
	if ((error = source_of(r, &about)))
		return error;
	if (about.format != FLOAT || view || d->flags & ~(unsigned)(INTEGERS | NORMALIZED) || d->anisotropy > 1)
		return NOT_SUPPORTED; /* here */
	about.linear = d->filter;
	about.normalized = d->flags & NORMALIZED;
	about.border = d->border[0];
	for (int i = 0; i < 2; i++)
		about.address[i] = about.normalized ? d->address[i] : CLAMP;
	if (r->type == OF_LINEAR) {
		about.linear = false;
		about.address[0] = BORDER;
		about.border = 0;
	}
	keep(TEXTURE, &about, handle);
	return OK;
}

CUresult cuSurfObjectCreate(CUsurfObject *handle, const CUDA_RESOURCE_DESC *r)
{
	ENTER(CURRENT);
	struct texture about = {0};
	struct array *a;
	CUresult error = unsafe_call();

	if (error)
		return error;
	if (!handle || !r || r->type != OF_ARRAY || r->flags)
		return INVALID_VALUE;
	if ((error = array_get(r->array, &a)) || (error = describe_array(r->array, &about)))
		return error;
	if (!(a->flags & SURFACE_LDST))
		violation("a surface is made of an array that was not made for it");
	keep(SURFACE, &about, handle);
	return OK;
}

static void forget(struct texture *t)
{
	struct texture **at = &textures;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	handle_end((void *)(uintptr_t)t->handle);
	free(t);
}

static CUresult destroy(enum kind kind, unsigned long long handle)
{
	struct texture *t = handle_get(kind, (void *)(uintptr_t)handle);
	CUresult r;

	if (!t)
		return sim.dead;
	if (!sim.dead && (r = owner(t->context)))
		return r;
	forget(t);
	return sim.dead;
}

CUresult cuTexObjectDestroy(CUtexObject handle)
{
	ENTER(DEAD);
	return destroy(TEXTURE, handle);
}

CUresult cuSurfObjectDestroy(CUsurfObject handle)
{
	ENTER(DEAD);
	return destroy(SURFACE, handle);
}

void textures_end(struct context *c)
{
	for (struct texture *t = textures, *next; t; t = next) {
		next = t->next;
		if (t->context == c) {
			live_lost(1);
			forget(t);
		}
	}
}

/* inside is an index that there is, or -1 for the border. */
static long inside(int address, long i, long n)
{
	if (i >= 0 && i < n)
		return i;
	switch (address) {
	case WRAP:
		return (i % n + n) % n;
	case CLAMP:
		return i < 0 ? 0 : n - 1;
	case MIRROR:
		i = (i % (2 * n) + 2 * n) % (2 * n);
		return i < n ? i : 2 * n - 1 - i;
	}
	return -1;
}

static float value(const struct texture *t, long x, long y)
{
	float *at;

	x = inside(t->address[0], x, t->width);
	y = inside(t->address[1], y, t->height);
	if (x < 0 || y < 0)
		return t->border;
	at = reachable(t->memory + y * t->pitch + x * t->channels * sizeof *at, sizeof *at, "a texture of");
	return at ? *at : 0;
}

/* part is the weight of the second of two values, of which the device has 256. */
static float part(float x)
{
	return roundf((x - floorf(x)) * 256) / 256;
}

float texture_read(unsigned long long handle, float x, float y)
{
	struct texture *t = handle_get(TEXTURE, (void *)(uintptr_t)handle);
	float a, b;
	long i, k;

	if (!t) {
		sim.faulted = ILLEGAL_ADDRESS;
		return 0;
	}
	if (t->normalized) {
		x *= t->width;
		y *= t->height;
	}
	if (!t->linear)
		return value(t, floorf(x), floorf(y));
	x -= 0.5f;
	y -= 0.5f;
	a = part(x);
	b = part(y);
	i = floorf(x);
	k = floorf(y);
	return (1 - b) * ((1 - a) * value(t, i, k) + a * value(t, i + 1, k))
		+ b * ((1 - a) * value(t, i, k + 1) + a * value(t, i + 1, k + 1));
}

void surface_write(unsigned long long handle, size_t x, size_t y, float value)
{
	struct texture *t = handle_get(SURFACE, (void *)(uintptr_t)handle);
	float *at = 0;

	if (t && t->format == FLOAT && t->channels == 1 && x < t->width && y < t->height)
		at = reachable(t->memory + y * t->pitch + x * sizeof *at, sizeof *at, "a surface of");
	if (at)
		*at = value;
	else
		sim.faulted = ILLEGAL_ADDRESS;
}
