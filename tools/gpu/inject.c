/* Records activities by CUPTI in any CUDA program: CUDA_INJECTION64_PATH=./libinject.so. Prints the number of records at exit. */
#include <cuda.h>
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
static size_t records[256];
static void req(uint8_t **b, size_t *n, size_t *m) { *n = 1 << 20; *b = aligned_alloc(8, *n); *m = 0; }
static void done(CUcontext c, uint32_t s, uint8_t *b, size_t n, size_t v)
{
	CUpti_Activity *r = 0;
	while (cuptiActivityGetNextRecord(b, v, &r) == CUPTI_SUCCESS)
		__atomic_add_fetch(&records[r->kind & 255], 1, __ATOMIC_RELAXED);
	free(b);
}
static void end(void)
{
	cuptiActivityFlushAll(1);
	fprintf(stderr, "cupti:");
	for (int i = 0; i < 256; i++)
		if (records[i])
			fprintf(stderr, " kind %d: %zu", i, records[i]);
	fprintf(stderr, "\n");
}
int InitializeInjection(void)
{
	static int once;
	if (once++)
		return 1;
	CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL, CUPTI_ACTIVITY_KIND_STREAM, CUPTI_ACTIVITY_KIND_CONTEXT};
	cuptiActivityRegisterCallbacks(req, done);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		CUptiResult r = cuptiActivityEnable(kinds[i]);
		if (r)
			fprintf(stderr, "cupti: enable %d: %d\n", kinds[i], r);
	}
	atexit(end);
	return 1;
}
