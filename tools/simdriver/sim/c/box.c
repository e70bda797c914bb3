#include "sim.h"

/* Copies and memsets of rows, and of slices of rows. */

enum { HOST_END = 1, DEVICE_END, ARRAY_END, UNIFIED_END };
#define MAX_PITCH 2147483647

/* A side is where an end of a copy lies, and in what rows. */
struct side {
	CUdeviceptr at;
	size_t pitch, slice;
	bool pageable;
};

static size_t span(const struct side *s, size_t width, size_t height, size_t depth)
{
	return (depth - 1) * s->slice + (height - 1) * s->pitch + width;
}

static CUresult in_array(const struct end *e, const CUDA_MEMCPY3D *p, struct side *s)
{
	struct array *a = handle_get(ARRAY, e->array); /* of any context */
	size_t row, rows, slices;

	if (!a)
		return INVALID_HANDLE;
	row = a->width * a->element;
	/* The slices of an array without rows are its layers. */
	rows = a->height ? a->height : 1;
	slices = a->depth ? a->depth : 1;
	if (e->x % a->element || p->width % a->element || e->x + p->width > row || e->y + p->height > rows || e->z + p->depth > slices)
		return INVALID_VALUE;
	*s = (struct side){a->block->address + (e->z * rows + e->y) * row + e->x, row, row * rows, false};
	return OK;
}

static CUresult side(const struct end *e, const CUDA_MEMCPY3D *p, const char *who, struct side *s)
{
	size_t pitch = e->pitch ? e->pitch : e->x + p->width, rows = e->height ? e->height : e->y + p->height;
	bool host = e->type == HOST_END;

	if (!e->type || e->type > UNIFIED_END || e->lod)
		return INVALID_VALUE;
	if (e->type == ARRAY_END)
		return in_array(e, p, s);
	if (pitch < e->x + p->width || (p->depth > 1 && rows < e->y + p->height))
		return INVALID_VALUE;
	s->at = (host ? e->host : e->device) + (e->z * rows + e->y) * pitch + e->x;
	s->pitch = pitch;
	s->slice = pitch * rows;
	s->pageable = host && !pinned((void *)(uintptr_t)s->at, span(s, p->width, p->height, p->depth));
	if (!s->at || (!host && !usable(s->at, span(s, p->width, p->height, p->depth), who)))
		return INVALID_VALUE;
	return OK;
}

/* stage copies the source during the call, without room between the rows. */
static void stage(struct item *i)
{
	struct rows *r = &i->rows;
	char *to = i->staged = malloc(i->size * r->height * r->depth);

	for (size_t z = 0; z < r->depth; z++)
		for (size_t y = 0; y < r->height; y++, to += i->size)
			memcpy(to, (char *)(uintptr_t)i->src + z * r->src_slice + y * r->src_pitch, i->size);
	r->src_pitch = i->size;
	r->src_slice = i->size * r->height;
}

CUresult box_item(const CUDA_MEMCPY3D *p, struct item **item, bool *to_pageable, bool *from_pageable)
{
	struct side to, from;
	struct item *i;
	CUresult r;

	if ((r = side(&p->dst, p, "a copy to", &to)) || (r = side(&p->src, p, "a copy from", &from)))
		return r;
	i = *item = item_new(COPY);
	i->dst = to.at;
	i->src = from.at;
	i->size = p->width;
	i->rows = (struct rows){p->height, p->depth, to.pitch, to.slice, from.pitch, from.slice};
	*to_pageable = to.pageable;
	*from_pageable = from.pageable;
	return OK;
}

bool one_row(const struct item *i)
{
	return i->rows.height <= 1 && i->rows.depth <= 1;
}

static CUresult copy(struct stream *s, const CUDA_MEMCPY3D *p)
{
	bool to_pageable, from_pageable;
	struct item *i;
	CUresult r;

	if (!p)
		return INVALID_VALUE;
	if (!p->width || !p->height || !p->depth)
		return OK;
	if ((r = box_item(p, &i, &to_pageable, &from_pageable)))
		return r;
	if (from_pageable && !s->capture)
		stage(i);
	r = enqueue(s, i);
	if (!r && to_pageable && !s->capture)
		stream_wait(s);
	return r ? r : sim.dead;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	ENTER(CURRENT, .does = WORKS);
	struct stream *s = current()->legacy;
	CUresult r = on_legacy(current());

	if (!r && p && (p->src.reserved || p->dst.reserved))
		r = INVALID_VALUE;
	if (!r && !(r = copy(s, p)))
		stream_wait(s);
	return r ? r : sim.dead;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (!r && p && (p->src.reserved || p->dst.reserved))
		r = INVALID_VALUE;
	return r ? r : copy(s, p);
}

static bool context(const struct end *e)
{
	return e->type != DEVICE_END || context_of(e->reserved);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream, .between = {p ? p->dst.reserved : 0, p ? p->src.reserved : 0});
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!p)
		return INVALID_VALUE;
	if (!context(&p->src) || !context(&p->dst))
		return INVALID_CONTEXT;
	if (s->capture) {
		s->capture->lost = true;
		return CAPTURE_UNSUPPORTED;
	}
	return copy(s, (const CUDA_MEMCPY3D *)p);
}

static CUresult set(CUstream stream, CUdeviceptr dst, size_t pitch, unsigned value, size_t element, size_t width, size_t height)
{
	struct side to = {dst, pitch, 0, false};
	struct stream *s;
	struct item *i;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!width || !height)
		return OK;
	if (dst % element || (height > 1 && (pitch % element || pitch / element < width)))
		return INVALID_VALUE;
	if (!usable(dst, span(&to, width * element, height, 1), "a memset of"))
		return INVALID_VALUE;
	i = item_new(SET);
	i->dst = dst;
	i->src = value;
	i->width = element;
	i->size = width;
	i->rows = (struct rows){.height = height, .depth = 1, .dst_pitch = pitch};
	return enqueue(s, i);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return set(stream, dst, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return set(stream, dst, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return set(stream, dst, pitch, value, 4, width, height);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	ENTER(CURRENT);
	struct block *b;
	CUresult r = unsafe_call();

	if (r)
		return r;
	if (!address || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return INVALID_VALUE;
	if (width > MAX_PITCH || height > SIZE_MAX / MAX_PITCH)
		return OUT_OF_MEMORY;
	*pitch = (width + 511) / 512 * 512;
	if (!(b = block_new(DEVICE_MEMORY, current()->device, current(), *pitch * height)))
		return OUT_OF_MEMORY;
	*address = b->address;
	return OK;
}
