#include "sim.h"

/* Copies of rows and slices, between memory of the host and of devices. */

enum { HOST_END = 1, DEVICE_END, ARRAY_END, UNIFIED_END };

static CUdeviceptr first(const struct end *e)
{
	return (e->type == HOST_END ? e->host : e->device) + (e->z * e->height + e->y) * e->pitch + e->x;
}

/* span is how much memory an end reaches over, from its first byte on. */
static size_t span(const struct end *e, const CUDA_MEMCPY3D *p)
{
	return ((p->depth - 1) * e->height + p->height - 1) * e->pitch + p->width;
}

static CUresult check(const struct end *e, const CUDA_MEMCPY3D *p, const char *who)
{
	if (e->type == ARRAY_END)
		return NOT_SUPPORTED; /* here */
	if (!e->type || e->type > UNIFIED_END || e->lod)
		return INVALID_VALUE;
	if ((p->height > 1 || p->depth > 1 || e->y || e->z) && e->pitch < p->width + e->x)
		return INVALID_VALUE;
	if ((p->depth > 1 || e->z) && e->height < p->height + e->y)
		return INVALID_VALUE;
	return e->type == HOST_END || usable(first(e), span(e, p), who) ? OK : INVALID_VALUE;
}

CUresult box_check(const CUDA_MEMCPY3D *p, CUdeviceptr *dst, CUdeviceptr *src)
{
	CUresult r = p->width && p->height && p->depth ? OK : INVALID_VALUE;

	if (!r)
		r = check(&p->dst, p, "a copy to");
	if (!r)
		r = check(&p->src, p, "a copy from");
	if (r)
		return r;
	*dst = first(&p->dst);
	*src = first(&p->src);
	return OK;
}

bool box_flat(const CUDA_MEMCPY3D *p)
{
	return p->height == 1 && p->depth == 1;
}

void box_run(const CUDA_MEMCPY3D *p)
{
	char *dst = reachable(first(&p->dst), span(&p->dst, p), "a copy to");
	char *src = reachable(first(&p->src), span(&p->src, p), "a copy from");

	for (size_t z = 0; dst && src && z < p->depth; z++)
		for (size_t y = 0; y < p->height; y++)
			memmove(dst + (z * p->dst.height + y) * p->dst.pitch, src + (z * p->src.height + y) * p->src.pitch, p->width);
}
