// The double of cuBLAS: the functions that package blas calls, as loops on the host.

#include "cublas/ztypes.h"
#include "cublas/zprotos.h"
#include "double.h"

struct z_cublasHandle_t {
	void *stream, *workspace;
	size_t size;
	unsigned device;
	atomic_int busy; // calls of one handle must not coincide
};

static unsigned enter(cublasHandle_t h)
{
	if (!h || !has_context())
		return NOT_INITIALIZED;
	if (atomic_exchange(&h->busy, 1))
		return INTERNAL_ERROR;
	usleep(20);
	return SUCCESS;
}

static unsigned leave(cublasHandle_t h, unsigned status)
{
	atomic_store(&h->busy, 0);
	return status;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
	*value = type == 0 ? 13 : type == 1 ? 1 : 0;
	return SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
	if (!has_context())
		return NOT_INITIALIZED;
	*h = calloc(1, sizeof **h);
	note("create", *h, NULL, NULL, 0);
	return SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
	if (!has_context())
		return NOT_INITIALIZED;
	unsigned (*synchronize)(void) = driver_function("cuCtxSynchronize"); // as cuBLAS does
	if (synchronize)
		synchronize();
	unsigned (*query)(void *) = driver_function("cuStreamQuery"); // it may use the handle's stream, which must be open
	if (query && h->stream)
		query(h->stream);
	note("destroy", h, NULL, NULL, 0);
	free(h);
	return SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	unsigned status = enter(h);
	if (status)
		return status;
	h->stream = s;
	h->workspace = NULL;
	return leave(h, SUCCESS);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t size)
{
	unsigned status = enter(h);
	if (status)
		return status;
	h->workspace = p;
	h->size = size;
	return leave(h, SUCCESS);
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode)
{
	h->device = mode;
	return SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
	note("math", h, NULL, NULL, mode);
	return SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t h, cublasAtomicsMode_t mode)
{
	note("atomics", h, NULL, NULL, mode);
	return SUCCESS;
}

// A job is any operation: products, and level 1 with vectors x and y.
struct job {
	int what; // 0 product, 1 its arrays of addresses, 2 dot, 3 dotc, 4 axpy, 5 scal, 6 nrm2
	unsigned type, result;
	unsigned opx, opy;
	int64_t m, n, k, ldx, ldy, ldz, stepx, stepy, stepz, count;
	number alpha, beta;
	const void *x, *y;
	void *z;
};

static void product(const struct job *j, const void *x, const void *y, void *z)
{
	number *rows = matrix(j->type, x, j->ldx, j->opx, j->m, j->k, 0), *cols = matrix(j->type, y, j->ldy, j->opy, j->k, j->n, 1);
	for (int64_t row = 0; row < j->m; row++)
		for (int64_t col = 0; col < j->n; col++) {
			number sum = dot(is_real(j->type), rows + row * j->k, cols + col * j->k, j->k) * j->alpha;
			if (j->beta != 0)
				sum += j->beta * load(j->type, z, row + col * j->ldz);
			store(j->type, z, row + col * j->ldz, sum);
		}
	free(rows);
	free(cols);
}

static void run(void *data)
{
	struct job *j = data;
	size_t size = size_of(j->type);
	number sum = 0;
	switch (j->what) {
	case 0:
		for (int64_t i = 0; i < j->count; i++)
			product(j, (const char *)j->x + i * j->stepx * size, (const char *)j->y + i * j->stepy * size, (char *)j->z + i * j->stepz * size);
		return;
	case 1:
		for (int64_t i = 0; i < j->count; i++)
			product(j, ((const void *const *)j->x)[i], ((const void *const *)j->y)[i], ((void *const *)j->z)[i]);
		return;
	case 2:
	case 3:
		for (int64_t i = 0; i < j->n; i++) {
			number v = load(j->type, j->x, i * j->ldx);
			sum += (j->what == 3 ? conj(v) : v) * load(j->type, j->y, i * j->ldy);
		}
		store(j->result, j->z, 0, sum);
		return;
	case 4:
		for (int64_t i = 0; i < j->n; i++)
			store(j->type, j->z, i * j->ldy, j->alpha * load(j->type, j->x, i * j->ldx) + load(j->type, j->z, i * j->ldy));
		return;
	case 5:
		for (int64_t i = 0; i < j->n; i++)
			store(j->type, j->z, i * j->ldx, j->alpha * load(j->type, j->z, i * j->ldx));
		return;
	}
	for (int64_t i = 0; i < j->n; i++) {
		number v = load(j->type, j->x, i * j->ldx);
		sum += creal(v) * creal(v) + cimag(v) * cimag(v);
	}
	store(j->result, j->z, 0, sqrt(creal(sum)));
}

static unsigned submit(cublasHandle_t h, const char *op, const struct job *j, unsigned device)
{
	unsigned status = enter(h);
	if (status)
		return status;
	if (!h->workspace || h->size == 0 || (uintptr_t)h->workspace % 256 || h->device != device)
		return leave(h, INTERNAL_ERROR); // package blas sets them
	note(op, h, h->stream, h->workspace, h->size);
	return leave(h, enqueue(h->stream, run, j, sizeof *j));
}

// factor is the type of a factor, by the type of computation.
static unsigned factor(unsigned compute, unsigned type)
{
	int wide = compute == 70 || compute == 71, complicated = type == C_32F || type == C_64F;
	return wide ? complicated ? C_64F : R_64F : complicated ? C_32F : R_32F;
}

static unsigned fits(const struct job *j)
{
	int64_t rowsx = j->opx ? j->k : j->m, rowsy = j->opy ? j->n : j->k;
	return j->x && j->y && j->ldx >= rowsx && j->ldx > 0 && j->ldy >= rowsy && j->ldy > 0 && j->ldz >= j->m && j->ldz > 0;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t h, cublasOperation_t opx, cublasOperation_t opy, int64_t m, int64_t n, int64_t k, const void *alpha,
	const void *x, cudaDataType tx, int64_t ldx, const void *y, cudaDataType ty, int64_t ldy, const void *beta, void *z, cudaDataType tz, int64_t ldz,
	cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	unsigned f = factor(compute, tx);
	struct job j = {0, tx, tz, opx, opy, m, n, k, ldx, ldy, ldz, 0, 0, 0, 1, scalar(f, alpha), scalar(f, beta), x, y, z};
	if (tx != ty || tx != tz || algo != -1 || !fits(&j))
		return INVALID_VALUE;
	char op[20];
	snprintf(op, sizeof op, "gemm/%u", compute);
	return submit(h, op, &j, 0);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t h, cublasOperation_t opx, cublasOperation_t opy, int64_t m, int64_t n, int64_t k, const void *alpha,
	const void *x, cudaDataType tx, int64_t ldx, long long stepx, const void *y, cudaDataType ty, int64_t ldy, long long stepy, const void *beta, void *z,
	cudaDataType tz, int64_t ldz, long long stepz, int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	unsigned f = factor(compute, tx);
	struct job j = {0, tx, tz, opx, opy, m, n, k, ldx, ldy, ldz, stepx, stepy, stepz, count, scalar(f, alpha), scalar(f, beta), x, y, z};
	return tx != ty || tx != tz || algo != -1 || !fits(&j) ? INVALID_VALUE : submit(h, "strided", &j, 0);
}

cublasStatus_t cublasGemmBatchedEx_64(cublasHandle_t h, cublasOperation_t opx, cublasOperation_t opy, int64_t m, int64_t n, int64_t k, const void *alpha,
	const void *const *x, cudaDataType tx, int64_t ldx, const void *const *y, cudaDataType ty, int64_t ldy, const void *beta, void *const *z,
	cudaDataType tz, int64_t ldz, int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
	unsigned f = factor(compute, tx);
	struct job j = {1, tx, tz, opx, opy, m, n, k, ldx, ldy, ldz, 0, 0, 0, count, scalar(f, alpha), scalar(f, beta), x, y, (void *)z};
	return tx != ty || tx != tz || algo != -1 || !fits(&j) ? INVALID_VALUE : submit(h, "batched", &j, 0);
}

static void run_gemv(void *data)
{
	struct job *j = data;
	for (int64_t row = 0; row < j->m; row++) {
		number sum = 0;
		for (int64_t i = 0; i < j->k; i++)
			sum += element(j->type, j->x, j->ldx, j->opx, row, i) * load(j->type, j->y, i * j->ldy);
		sum *= j->alpha;
		if (j->beta != 0)
			sum += j->beta * load(j->type, j->z, row * j->ldz);
		store(j->type, j->z, row * j->ldz, sum);
	}
}

static unsigned gemv(cublasHandle_t h, const struct job *j, int64_t rows)
{
	if (j->ldx < rows)
		return INVALID_VALUE;
	unsigned status = enter(h);
	if (status)
		return status;
	if (!h->workspace || h->device)
		return leave(h, INTERNAL_ERROR);
	note("gemv", h, h->stream, h->workspace, h->size);
	return leave(h, enqueue(h->stream, run_gemv, j, sizeof *j));
}

#define GEMV(name, element, id)                                                                                               \
	cublasStatus_t name(cublasHandle_t h, cublasOperation_t op, int64_t m, int64_t n, const element *alpha, const element *a,   \
		int64_t lda, const element *x, int64_t incx, const element *beta, element *y, int64_t incy)                             \
	{                                                                                                                         \
		struct job j = {.type = id, .opx = op, .m = op ? n : m, .n = 1, .k = op ? m : n, .ldx = lda, .ldy = incx, .ldz = incy,  \
			.alpha = scalar(id, alpha), .beta = scalar(id, beta), .x = a, .y = x, .z = y};                                                            \
		return gemv(h, &j, m);                                                                                                \
	}

GEMV(cublasSgemv_v2_64, float, R_32F)
GEMV(cublasDgemv_v2_64, double, R_64F)
GEMV(cublasCgemv_v2_64, cuComplex, C_32F)
GEMV(cublasZgemv_v2_64, cuDoubleComplex, C_64F)

// computes tells whether level 1 computes these types together.
static int computes(unsigned type, unsigned execution)
{
	return execution == (size_of(type) == 2 ? R_32F : type);
}

cublasStatus_t cublasDotEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType tx, int64_t incx, const void *y, cudaDataType ty, int64_t incy,
	void *result, cudaDataType tr, cudaDataType te)
{
	struct job j = {.what = 2, .type = tx, .result = tr, .n = n, .ldx = incx, .ldy = incy, .x = x, .y = y, .z = result};
	return tx != ty || tx != tr || !computes(tx, te) ? NOT_SUPPORTED : submit(h, "dot", &j, 1);
}

cublasStatus_t cublasDotcEx_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType tx, int64_t incx, const void *y, cudaDataType ty, int64_t incy,
	void *result, cudaDataType tr, cudaDataType te)
{
	struct job j = {.what = 3, .type = tx, .result = tr, .n = n, .ldx = incx, .ldy = incy, .x = x, .y = y, .z = result};
	return tx != ty || tx != tr || !computes(tx, te) ? NOT_SUPPORTED : submit(h, "dotc", &j, 1);
}

cublasStatus_t cublasAxpyEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType ta, const void *x, cudaDataType tx, int64_t incx, void *y,
	cudaDataType ty, int64_t incy, cudaDataType te)
{
	struct job j = {.what = 4, .type = tx, .n = n, .ldx = incx, .ldy = incy, .x = x, .z = y, .alpha = scalar(ta, alpha)};
	return tx != ty || ta != te || !computes(tx, te) ? NOT_SUPPORTED : submit(h, "axpy", &j, 0);
}

cublasStatus_t cublasScalEx_64(cublasHandle_t h, int64_t n, const void *alpha, cudaDataType ta, void *x, cudaDataType tx, int64_t incx, cudaDataType te)
{
	struct job j = {.what = 5, .type = tx, .n = n, .ldx = incx, .z = x, .alpha = scalar(ta, alpha)};
	return ta != te || !computes(tx, te) ? NOT_SUPPORTED : submit(h, "scal", &j, 0);
}

cublasStatus_t cublasNrm2Ex_64(cublasHandle_t h, int64_t n, const void *x, cudaDataType tx, int64_t incx, void *result, cudaDataType tr, cudaDataType te)
{
	struct job j = {.what = 6, .type = tx, .result = tr, .n = n, .ldx = incx, .x = x, .z = result};
	unsigned real = tx == C_32F ? R_32F : tx == C_64F ? R_64F : tx;
	return tr != real || !computes(real, te) ? NOT_SUPPORTED : submit(h, "nrm2", &j, 1);
}
