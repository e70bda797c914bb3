#include "sim.h"

static bool of_pool(CUdeviceptr address)
{
	struct block *b = block_at(address);

	return b && b->pool;
}

static struct item *copying(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct item *i = item_new(COPY);

	i->dst = dst;
	i->src = src;
	i->size = size;
	return i;
}

enum side { TO_DEVICE, TO_HOST, ON_DEVICE };

/* has_ender tells whether a node of a graph frees the memory: CUDA captures no copy of it from then on, but memsets and kernels. */
static bool has_ender(const struct stream *s, CUdeviceptr address)
{
	struct block *b = s->capture && !s->capture->again ? block_at(address) : 0;

	return b && b->enders;
}

/*
 * Memory of the host that is not pinned is read during the call, and written
 * before it returns. A captured copy reads it at every launch of the graph.
 */
static CUresult copy(struct stream *s, enum side side, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct item *i;
	bool wait = side == TO_HOST && !pinned((void *)(uintptr_t)dst, size) && !s->capture;
	CUresult r;

	if (!size)
		return OK;
	if (side != TO_HOST && !usable(dst, size, "a copy to"))
		return INVALID_VALUE;
	if (side != TO_DEVICE && !usable(src, size, "a copy from"))
		return INVALID_VALUE;
	if (!dst || !src || has_ender(s, dst) || has_ender(s, src))
		return INVALID_VALUE;
	i = copying(dst, src, size);
	i->contextless = s->capture && !current() && (of_pool(dst) || of_pool(src));
	if (side == TO_DEVICE && !pinned((void *)(uintptr_t)src, size) && !s->capture)
		i->staged = memcpy(malloc(size), (void *)(uintptr_t)src, size);
	r = enqueue(s, i);
	if (!r && wait)
		stream_wait(s);
	return r ? r : sim.dead;
}

static CUresult later(CUstream stream, enum side side, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	return r ? r : copy(s, side, dst, src, size);
}

/* Synchronous copies are work of the legacy stream. */
static CUresult now(enum side side, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct stream *s = current()->legacy;
	CUresult r = on_legacy(current());

	if (r)
		return r;
	r = copy(s, side, dst, src, size);
	if (!r && side != ON_DEVICE)
		stream_wait(s);
	return r ? r : sim.dead;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
	ENTER(CURRENT, .does = WORKS);
	return now(TO_DEVICE, dst, (uintptr_t)src, size);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
	ENTER(CURRENT, .does = WORKS);
	return now(TO_HOST, (uintptr_t)dst, src, size);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	ENTER(CURRENT, .does = WORKS);
	return now(ON_DEVICE, dst, src, size);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return later(stream, TO_DEVICE, dst, (uintptr_t)src, size);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return later(stream, TO_HOST, (uintptr_t)dst, src, size);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return later(stream, ON_DEVICE, dst, src, size);
}

static bool contexts(CUcontext a, CUcontext b)
{
	return context_of(a) && context_of(b);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size)
{
	ENTER(CURRENT, .does = WORKS);
	return contexts(to, from) ? now(ON_DEVICE, dst, src, size) : INVALID_CONTEXT;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream, .between = {to, from});
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	if (r)
		return r;
	if (!contexts(to, from))
		return INVALID_CONTEXT;
	if (s->capture) {
		s->capture->lost = true;
		return CAPTURE_UNSUPPORTED;
	}
	return copy(s, ON_DEVICE, dst, src, size);
}

static CUresult set(struct stream *s, CUdeviceptr dst, unsigned value, size_t width, size_t n)
{
	struct item *i;

	if (!n)
		return OK;
	if (dst % width || n > SIZE_MAX / width || !usable(dst, n * width, "a memset of"))
		return INVALID_VALUE;
	i = item_new(SET);
	i->dst = dst;
	i->src = value;
	i->width = width;
	i->size = n;
	return enqueue(s, i);
}

#define SETS(name, type, width) \
	CUresult cuMemset##name##_v2(CUdeviceptr dst, type value, size_t n) \
	{ \
		ENTER(CURRENT, .does = WORKS); \
		CUresult r = on_legacy(current()); \
		return r ? r : set(current()->legacy, dst, value, width, n); \
	} \
	CUresult cuMemset##name##Async(CUdeviceptr dst, type value, size_t n, CUstream stream) \
	{ \
		ENTER(CALLBACK, .does = WORKS, .stream = stream); \
		struct stream *s; \
		CUresult r = stream_get(stream, &s); \
		return r ? r : set(s, dst, value, width, n); \
	}

SETS(D8, unsigned char, 1)
SETS(D16, unsigned short, 2)
SETS(D32, unsigned int, 4)

static bool of_host(CUdeviceptr address)
{
	struct block *b = block_at(address);

	return !b || b->place == HOST_MEMORY;
}

/* anywhere copies between addresses that tell where they are. */
static CUresult anywhere(struct stream *s, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	return copy(s, of_host(dst) ? TO_HOST : of_host(src) ? TO_DEVICE : ON_DEVICE, dst, src, size);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	ENTER(CURRENT, .does = WORKS);
	return now(of_host(dst) ? TO_HOST : of_host(src) ? TO_DEVICE : ON_DEVICE, dst, src, size);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	return r ? r : anywhere(s, dst, src, size);
}

/* reaches tells whether a copy of a batch could be done. */
static bool reaches(CUdeviceptr address, size_t size, const char *who)
{
	return size && address && (of_host(address) || usable(address, size, who));
}

/* batch does all copies or none, and tells which one is wrong. */
static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
	size_t *from, size_t n, CUstream stream, size_t *wrong)
{
	struct stream *s;
	CUresult r = stream_get(stream, &s);

	*wrong = SIZE_MAX;
	if (r)
		return r;
	if (s == s->context->legacy || !dsts || !srcs || !sizes || !count || !attributes || !from || !n || n > count || from[0])
		return INVALID_VALUE;
	if (s->capture)
		return CAPTURE_UNSUPPORTED; /* and the capture goes on */
	for (size_t i = 0; i < n; i++)
		if (!attributes[i].order || attributes[i].order > 3 || attributes[i].flags > 1 || from[i] >= count || (i && from[i] <= from[i - 1]))
			return INVALID_VALUE;
	for (size_t i = 0; i < count && s->green; i++)
		if (of_pool(dsts[i]) || of_pool(srcs[i]))
			violation("a batch of copies with memory of a pool on a stream of a green context, which crashes the process");
	for (size_t i = 0; i < count; i++)
		if (!reaches(dsts[i], sizes[i], "a copy to") || !reaches(srcs[i], sizes[i], "a copy from")) {
			*wrong = i;
			return INVALID_VALUE;
		}
	for (size_t i = 0; i < count && !r; i++)
		r = anywhere(s, dsts[i], srcs[i], sizes[i]);
	return r;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
	size_t *from, size_t n, size_t *wrong, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	size_t unused;

	return batch(dsts, srcs, sizes, count, attributes, from, n, stream, wrong ? wrong : &unused);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
	size_t *from, size_t n, CUstream stream)
{
	ENTER(0, .does = WORKS, .stream = stream);
	size_t unused;

	return batch(dsts, srcs, sizes, count, attributes, from, n, stream, &unused);
}
