#include "sim.h"

static struct array *arrays;

enum { LAYERED = 1, SURFACE_LDST = 2 };

size_t format_size(unsigned format)
{
	switch (format) {
	case 1: case 8: /* integers */
		return 1;
	case 2: case 9: case 0x10: /* and half */
		return 2;
	case 3: case 10: case 0x20: /* and float */
		return 4;
	}
	return 0;
}

CUresult array_get(CUarray handle, struct array **a)
{
	if (!(*a = handle_get(ARRAY, handle)))
		return INVALID_HANDLE;
	return owner((*a)->context);
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	ENTER(CURRENT);
	struct array *a;
	struct block *b;
	size_t rows, slices, element;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!handle || !d || !d->width || (d->channels != 1 && d->channels != 2 && d->channels != 4))
		return INVALID_VALUE;
	if (d->flags & LAYERED ? !d->depth : !d->height && d->depth)
		return INVALID_VALUE;
	if (!format_size(d->format) || d->flags & ~(unsigned)(LAYERED | SURFACE_LDST))
		return NOT_SUPPORTED; /* here */
	if (d->width > 131072 || d->height > 131072 || d->depth > 16384)
		return INVALID_VALUE;
	rows = d->height ? d->height : 1;
	slices = d->depth ? d->depth : 1;
	element = format_size(d->format) * d->channels;
	if (!(b = block_new(ARRAY_MEMORY, current()->device, current(), d->width * rows * slices * element)))
		return OUT_OF_MEMORY;
	a = calloc(1, sizeof *a);
	a->handle = *handle = handle_new(ARRAY, a);
	a->context = current();
	a->block = b;
	a->width = d->width;
	a->height = d->height;
	a->depth = d->depth;
	a->element = element;
	a->format = d->format;
	a->channels = d->channels;
	a->flags = d->flags;
	a->next = arrays;
	arrays = a;
	return OK;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *d, CUarray handle)
{
	ENTER(0);
	struct array *a;
	CUresult r = array_get(handle, &a);

	if (r)
		return r;
	if (!d)
		return INVALID_VALUE;
	*d = (CUDA_ARRAY3D_DESCRIPTOR){a->width, a->height, a->depth, a->format, a->channels, a->flags};
	return OK;
}

static void forget(struct array *a)
{
	struct array **at = &arrays;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	handle_end(a->handle);
	free(a);
}

CUresult cuArrayDestroy(CUarray handle)
{
	ENTER(DEAD);
	struct array *a = handle_get(ARRAY, handle);
	CUresult r;

	if (!a)
		return INVALID_HANDLE;
	if (!sim.dead && ((r = owner(a->context)) || (r = unsafe_call())))
		return r;
	context_wait(a->context);
	if (handle_get(ARRAY, handle) != a)
		return INVALID_HANDLE;
	block_free(a->block);
	forget(a);
	return sim.dead;
}

/* arrays_end forgets those of a context, whose memory goes with it. */
void arrays_end(struct context *c)
{
	for (struct array *a = arrays, *next; a; a = next) {
		next = a->next;
		if (a->context == c)
			forget(a);
	}
}
