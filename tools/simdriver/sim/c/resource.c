#include "sim.h"

/*
 * Multiprocessors, for green contexts. Resources and descriptions are plain
 * values; who has which is a mask in the driver's own bytes of a resource.
 */
enum { SM = 1, SPLIT_FINE = 1, SPLIT_LARGE = 2, BACKFILL = 1 };
enum { MOST = 8 * 32 };
enum { FINE = 2, USUAL = 8, LARGE = 16 }; /* what groups are multiples of */
enum { KNOWN = 0x9ee9 };

static bool has(const struct z_CUdevResource *r, unsigned i)
{
	return r->inner.mask[i / 32] >> i % 32 & 1;
}

static void give(struct z_CUdevResource *r, unsigned i)
{
	r->inner.mask[i / 32] |= 1u << i % 32;
	r->sm.count++;
}

/* take moves n multiprocessors. */
static void take(struct z_CUdevResource *to, struct z_CUdevResource *from, unsigned n)
{
	for (unsigned i = 0; i < MOST && n; i++)
		if (has(from, i)) {
			from->inner.mask[i / 32] &= ~(1u << i % 32);
			from->sm.count--;
			give(to, i);
			n--;
		}
}

/* none makes a resource without any. */
static void none(struct z_CUdevResource *r, unsigned device, unsigned unit, unsigned split)
{
	memset(r, 0, sizeof *r);
	r->type = SM;
	r->inner.known = KNOWN;
	r->inner.device = device;
	r->inner.split = split;
	if (SIM_VERSION >= 13000)
		r->sm.least = r->sm.alignment = unit;
}

/* bad returns the error of a resource that the program gives, or OK. */
static CUresult bad(const struct z_CUdevResource *r)
{
	if (!r)
		return INVALID_VALUE;
	if (r->type != SM)
		return INVALID_RESOURCE_TYPE;
	if (r->inner.known == KNOWN)
		return OK;
	violation("a resource is used that the driver has not filled in");
	return INVALID_VALUE;
}

CUresult resource_tell(struct z_CUdevResource *to, unsigned type, const struct z_CUdevResource *part, unsigned device)
{
	if (!to)
		return INVALID_VALUE;
	if (type != SM)
		return INVALID_RESOURCE_TYPE;
	if (part) {
		*to = *part;
		return OK;
	}
	none(to, device, USUAL, 0);
	for (int i = 0; i < MULTIPROCESSORS; i++)
		give(to, i);
	return OK;
}

CUresult cuDeviceGetDevResource(CUdevice d, CUdevResource *to, CUdevResourceType type)
{
	ENTER(0);
	return device_get(d) ? resource_tell(to, type, 0, d) : INVALID_DEVICE;
}

static unsigned splits;

/* begin begins a split, of which all multiprocessors are left. */
static struct z_CUdevResource begin(const struct z_CUdevResource *input)
{
	struct z_CUdevResource left = *input;

	left.inner.split = ++splits;
	return left;
}

static void end(struct z_CUdevResource *rest, const struct z_CUdevResource *left)
{
	if (!rest)
		return;
	memset(rest, 0, sizeof *rest);
	if (left->sm.count)
		*rest = *left;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *n, const CUdevResource *input, CUdevResource *rest, unsigned flags, unsigned least)
{
	ENTER(0);
	unsigned unit = flags & SPLIT_FINE ? FINE : flags & SPLIT_LARGE ? LARGE : USUAL;
	unsigned size = least ? (least + unit - 1) / unit * unit : unit;
	struct z_CUdevResource left;
	CUresult r = bad(input);

	if (r)
		return r;
	if (!n)
		return INVALID_VALUE;
	if (input->inner.split || size > input->sm.count)
		return INVALID_RESOURCE_CONFIGURATION;
	if (!result || *n > input->sm.count / size)
		*n = input->sm.count / size;
	if (!result)
		return OK;
	left = begin(input);
	for (unsigned i = 0; i < *n; i++) {
		none(result + i, left.inner.device, unit, left.inner.split);
		take(result + i, &left, size);
	}
	end(rest, &left);
	return OK;
}

/* group moves what a group is to have. */
static CUresult group(struct z_CUdevResource *to, struct z_CUdevResource *left, struct z_CU_DEV_SM_RESOURCE_GROUP_PARAMS *p)
{
	unsigned together = p->together ? p->together : USUAL, unit = p->flags & BACKFILL ? FINE : together;

	if (together % FINE || together > 32 || p->count % unit || p->flags > BACKFILL)
		return INVALID_VALUE;
	if (p->count > left->sm.count)
		return INVALID_RESOURCE_CONFIGURATION;
	if (!p->count)
		p->count = left->sm.count / unit * unit;
	none(to, left->inner.device, together, left->inner.split);
	to->sm.flags = p->flags;
	take(to, left, p->count);
	return OK;
}

CUresult cuDevSmResourceSplit(CUdevResource *result, unsigned n, const CUdevResource *input, CUdevResource *rest, unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS *groups)
{
	ENTER(0);
	struct z_CUdevResource left, to;
	CUresult r = bad(input);

	if (r)
		return r;
	if (!n || !groups || flags)
		return INVALID_VALUE;
	if (input->inner.split)
		return INVALID_RESOURCE_CONFIGURATION;
	left = begin(input);
	for (unsigned i = 0; i < n; i++) {
		if ((r = group(&to, &left, &groups[i])))
			return r;
		if (result && !to.sm.count)
			return INVALID_RESOURCE_CONFIGURATION;
		if (result)
			result[i] = to;
	}
	end(rest, &left);
	return OK;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *handle, CUdevResource *resources, unsigned n)
{
	ENTER(0);
	struct z_CUdevResource *all;

	if (!handle || !resources || !n)
		return INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		CUresult r = bad(&resources[i]);

		if (r)
			return r;
		if (resources[i].inner.device != resources->inner.device)
			return INVALID_RESOURCE_CONFIGURATION;
	}
	all = malloc(sizeof *all); /* for good */
	none(all, resources->inner.device, resources->sm.alignment, 0);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < MOST; k++)
			if (has(&resources[i], k) && !has(all, k))
				give(all, k);
	*handle = handle_new(DESC, all);
	return OK;
}
