// The double of cuBLASLt: the functions that package blas calls, as loops on the host.

#include "cublaslt/ztypes.h"
#include "cublaslt/zprotos.h"
#include "double.h"

struct z_cublasLtHandle_t { int unused; };
struct z_cublasLtMatrixLayoutOpaque_t { unsigned type; uint64_t rows, cols; int64_t ld; };
struct z_cublasLtMatmulPreferenceOpaque_t { uint64_t workspace; };
struct z_cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct z_cublasLtMatmulHeuristicResult_t {
	cublasLtMatmulAlgo_t algo;
	size_t workspace;
	cublasStatus_t state;
	float waves;
	int reserved[4];
};
struct z_cublasLtMatmulDescOpaque_t {
	unsigned compute, scale, opx, opy, epilogue, bias_type;
	void *bias, *aux, *scale_x, *scale_y, *scale_d, *amax;
	int64_t aux_ld;
	atomic_int busy;
};

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value)
{
	*value = type == 0 ? 13 : type == 1 ? 1 : 0;
	return SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
	*h = calloc(1, sizeof **h);
	note("ltcreate", *h, NULL, NULL, 0);
	return has_context() ? SUCCESS : NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
	note("ltdestroy", h, NULL, NULL, 0);
	free(h);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
	*d = calloc(1, sizeof **d);
	(*d)->compute = compute, (*d)->scale = scale, (*d)->epilogue = 1, (*d)->bias_type = -1;
	note("desc", *d, NULL, NULL, compute);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	note("undesc", d, NULL, NULL, 0);
	free(d);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *p, size_t size)
{
	void *to;
	size_t want = 8;
	switch (a) {
	case 3: to = &d->opx, want = 4; break;
	case 4: to = &d->opy, want = 4; break;
	case 7: to = &d->epilogue, want = 4; break;
	case 26: to = &d->bias_type, want = 4; break;
	case 25: return size == 1 ? SUCCESS : INVALID_VALUE;
	case 8: to = &d->bias; break;
	case 11: to = &d->aux; break;
	case 12: to = &d->aux_ld; break;
	case 17: to = &d->scale_x; break;
	case 18: to = &d->scale_y; break;
	case 20: to = &d->scale_d; break;
	case 21: to = &d->amax; break;
	default: return INVALID_VALUE;
	}
	if (size != want)
		return INVALID_VALUE;
	memcpy(to, p, size);
	return SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
	*l = calloc(1, sizeof **l);
	**l = (cublasLtMatrixLayoutOpaque_t){type, rows, cols, ld};
	return SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	free(l);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = calloc(1, sizeof **p);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t size)
{
	if (size != (a == 1 ? 8 : 4))
		return INVALID_VALUE;
	if (a == 1)
		memcpy(&p->workspace, v, 8);
	return SUCCESS;
}

struct job {
	cublasLtMatmulDescOpaque_t d;
	unsigned tx, ty, tz;
	int64_t m, n, k, ldx, ldy, ldz;
	number alpha, beta;
	const void *x, *y;
	void *z;
};

// fits tells whether the layouts make a product.
static int fits(const cublasLtMatmulDescOpaque_t *d, cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t y, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t z)
{
	uint64_t m = d->opx ? x->cols : x->rows, k = d->opx ? x->rows : x->cols, l = d->opy ? y->cols : y->rows, n = d->opy ? y->rows : y->cols;
	return k == l && m == z->rows && n == z->cols && c->rows == z->rows && c->cols == z->cols && x->ld >= (int64_t)x->rows && y->ld >= (int64_t)y->rows &&
		z->ld >= (int64_t)z->rows;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t y,
	cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t z, cublasLtMatmulPreference_t p, int want, cublasLtMatmulHeuristicResult_t *found, int *count)
{
	if (!h || !has_context() || want != 1 || p->workspace == 0)
		return INVALID_VALUE;
	note("heuristic", d, NULL, NULL, d->epilogue);
	*count = 0;
	if (!fits(d, x, y, c, z) || z->rows == 13) // for a test of what is not supported
		return NOT_SUPPORTED;
	memset(found, 0, sizeof *found);
	found->algo.data[0] = 4711;
	found->workspace = 1024;
	*count = 1;
	return SUCCESS;
}

static double gelu(double v) { return v / 2 * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }

// derivative is that of gelu.
static double derivative(double v)
{
	double t = tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
	return (1 + t) / 2 + v / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
}

static double one(const void *scale) { return scale ? *(const float *)scale : 1; }

// epilogue stores an element and returns it.
static number epilogue(struct job *j, int64_t row, int64_t col, number v)
{
	unsigned e = j->d.epilogue;
	uint8_t *bits = (uint8_t *)j->d.aux + (row + col * j->d.aux_ld) / 8;
	int bit = 1 << (row + col * j->d.aux_ld) % 8;
	if (e & 4)
		v += load(j->d.bias_type, j->d.bias, row);
	switch (e & ~(4u | 16u)) {
	case 130:
		*bits = creal(v) > 0 ? *bits | bit : *bits & ~bit; // fall through
	case 2:
		return creal(v) > 0 ? v : 0;
	case 160:
		store(j->tz, j->d.aux, row + col * j->d.aux_ld, v); // fall through
	case 32:
		return gelu(creal(v));
	case 136:
		return *bits & bit ? v : 0;
	case 192:
		return v * derivative(creal(load(j->tz, j->d.aux, row + col * j->d.aux_ld)));
	}
	return v;
}

static void sums(struct job *j)
{
	unsigned e = j->d.epilogue;
	for (int64_t row = 0; row < j->m && (e == 152 || e == 208 || e == 256); row++) {
		number sum = 0;
		if (e == 256)
			for (int64_t i = 0; i < j->k; i++)
				sum += element(j->tx, j->x, j->ldx, j->d.opx, row, i);
		else
			for (int64_t col = 0; col < j->n; col++)
				sum += load(j->tz, j->z, row + col * j->ldz);
		store(j->d.bias_type, j->d.bias, row, sum);
	}
	for (int64_t col = 0; col < j->n && e == 512; col++) {
		number sum = 0;
		for (int64_t i = 0; i < j->k; i++)
			sum += element(j->ty, j->y, j->ldy, j->d.opy, i, col);
		store(j->d.bias_type, j->d.bias, col, sum);
	}
}

static void run(void *data)
{
	struct job *j = data;
	double most = 0, scale = one(j->d.scale_x) * one(j->d.scale_y);
	number *x = matrix(j->tx, j->x, j->ldx, j->d.opx, j->m, j->k, 0), *y = matrix(j->ty, j->y, j->ldy, j->d.opy, j->k, j->n, 1);
	for (int64_t row = 0; row < j->m; row++)
		for (int64_t col = 0; col < j->n; col++) {
			number sum = dot(is_real(j->tx) && is_real(j->ty), x + row * j->k, y + col * j->k, j->k) * (j->alpha * scale);
			if (j->beta != 0)
				sum += j->beta * load(j->tz, j->z, row + col * j->ldz);
			sum = epilogue(j, row, col, sum);
			most = fmax(most, cabs(sum));
			store(j->tz, j->z, row + col * j->ldz, sum * one(j->d.scale_d));
		}
	free(x);
	free(y);
	if (j->d.amax)
		*(float *)j->d.amax = most;
	sums(j);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *x, cublasLtMatrixLayout_t lx, const void *y,
	cublasLtMatrixLayout_t ly, const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *z, cublasLtMatrixLayout_t lz,
	const cublasLtMatmulAlgo_t *algo, void *workspace, size_t size, cudaStream_t stream)
{
	if (!h || !has_context() || !fits(d, lx, ly, lc, lz) || algo->data[0] != 4711 || size < 1024 || (uintptr_t)workspace % 256)
		return INVALID_VALUE;
	if (atomic_exchange(&d->busy, 1))
		return INTERNAL_ERROR;
	struct job j = {*d, lx->type, ly->type, lz->type, lz->rows, lz->cols, d->opx ? lx->rows : lx->cols, lx->ld, ly->ld, lz->ld,
		scalar(d->scale, alpha), scalar(d->scale, beta), x, y, z};
	if (j.beta != 0 && c != z)
		return INVALID_VALUE;
	note("matmul", d, stream, workspace, size);
	usleep(20);
	unsigned status = enqueue(stream, run, &j, sizeof j);
	atomic_store(&d->busy, 0);
	return status;
}
