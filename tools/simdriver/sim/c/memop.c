#include "sim.h"

enum { WAIT_32 = 1, WRITE_32, FLUSH, WAIT_64, WRITE_64, BARRIER, REDUCTION = 8 };
enum { GEQ, EQ, AND, NOR, FLUSHES = 1 << 30 };

static bool waits(unsigned operation) { return operation == WAIT_32 || operation == WAIT_64; }
static size_t width(unsigned operation) { return operation == WAIT_64 || operation == WRITE_64 ? 8 : 4; }

static bool met(uint64_t now, const CUstreamBatchMemOpParams *op)
{
	uint64_t value = op->value.value;
	unsigned shift = 64 - 8 * width(op->operation); /* what does not count is shifted out */

	switch (op->value.flags) {
	case GEQ:
		return (int64_t)((now - value) << shift) >= 0;
	case EQ:
		return !((now ^ value) << shift);
	case AND:
		return (now & value) << shift;
	default:
		return ~(now | value) << shift;
	}
}

/* step does one operation, or tells that a wait is not over. */
static bool step(const CUstreamBatchMemOpParams *op)
{
	size_t size = width(op->operation);
	uint64_t now = 0;
	void *at;

	if (op->operation == BARRIER || !(at = reachable(op->value.address, size, "an operation on memory")))
		return true;
	if (!waits(op->operation)) {
		memcpy(at, &op->value.value, size);
		return true;
	}
	memcpy(&now, at, size);
	return met(now, op);
}

bool memop_run(struct item *i)
{
	for (; i->at < i->n; i->at++)
		if (!step(&i->ops[i->at])) {
			i->until = now_ns() + 50000;
			return false;
		}
	return true;
}

static CUresult check_one(const CUstreamBatchMemOpParams *op)
{
	struct block *b = block_at(op->value.address);
	size_t size = width(op->operation);

	switch (op->operation) {
	case BARRIER:
		return OK;
	case WAIT_32:
	case WAIT_64:
		if (op->value.flags & FLUSHES)
			return NOT_SUPPORTED; /* as where the device attribute says so */
		if (op->value.flags > NOR)
			return INVALID_VALUE;
		break;
	case WRITE_32:
	case WRITE_64:
		if (op->value.flags)
			return INVALID_VALUE;
		break;
	default:
		return op->operation == FLUSH || op->operation == REDUCTION ? NOT_SUPPORTED : INVALID_VALUE; /* the second here */
	}
	if (op->value.address % size || (b && (b->place == MANAGED_MEMORY || b->managed || b->place == ASYNC_MEMORY)))
		return INVALID_VALUE;
	return usable(op->value.address, size, "an operation on") ? OK : INVALID_VALUE;
}

CUresult memop_check(const CUstreamBatchMemOpParams *ops, unsigned n)
{
	CUresult r = OK;

	for (unsigned k = 0; !r && k < n; k++)
		r = check_one(&ops[k]);
	return r;
}

bool memop_alike(const struct item *a, const struct item *b)
{
	for (int k = 0; k < a->n && k < b->n; k++)
		if (a->ops[k].operation != b->ops[k].operation)
			return false;
	return a->n == b->n;
}

static CUresult batch(CUstream handle, const CUstreamBatchMemOpParams *ops, unsigned n)
{
	struct stream *s;
	struct item *i;
	CUresult r = stream_get(handle, &s);

	if (!r)
		r = memop_check(ops, n);
	if (r || !n)
		return r;
	i = item_new(MEMOP);
	i->ops = memcpy(malloc(n * sizeof *ops), ops, n * sizeof *ops);
	i->n = n;
	return enqueue(s, i);
}

static CUresult single(CUstream stream, unsigned operation, CUdeviceptr address, uint64_t value, unsigned flags)
{
	CUstreamBatchMemOpParams op = {.value = {operation, address, value, flags, 0}};

	return batch(stream, &op, 1);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return single(stream, WAIT_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return single(stream, WAIT_64, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return single(stream, WRITE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return single(stream, WRITE_64, address, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags)
{
	ENTER(0, .does = WORKS, .stream = stream);
	return (n && !ops) || n >= 256 || flags ? INVALID_VALUE : batch(stream, ops, n);
}
