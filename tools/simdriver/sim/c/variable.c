#include "sim.h"

/* The variables of modules: each module that is loaded has its own. */
struct global *global_add(struct module *m, const char *name, size_t size)
{
	struct global *g;

	m->globals = list_grown(m->globals, m->nglobals, sizeof *g);
	g = &m->globals[m->nglobals++];
	*g = (struct global){.name = strdup(name), .size = size};
	return g;
}

CUresult globals_make(struct module *m, struct context *c)
{
	for (int i = 0; i < m->nglobals; i++) {
		struct global *g = &m->globals[i];
		void *at;

		if (g->untold)
			continue;
		if (!(g->block = block_new(GLOBAL_MEMORY, c->device, c, g->size))) {
			globals_free(m);
			return OUT_OF_MEMORY;
		}
		g->block->managed = g->managed;
		at = (void *)(uintptr_t)g->block->address;
		if (g->bytes)
			memcpy(at, g->bytes, g->size);
		else
			memset(at, 0, g->size);
	}
	return OK;
}

void globals_free(struct module *m)
{
	for (int i = 0; i < m->nglobals; i++) {
		if (m->globals[i].block)
			block_free(m->globals[i].block);
		m->globals[i].block = 0;
	}
}

struct global *global_named(struct module *m, const char *name)
{
	for (int i = 0; i < m->nglobals; i++)
		if (!strcmp(m->globals[i].name, name))
			return &m->globals[i];
	return 0;
}

CUresult global_get(const struct global *g, CUdeviceptr *address, size_t *size)
{
	if (!g)
		return NOT_FOUND;
	if (g->untold) {
		logged("variable %s: the image, perhaps of the double of NVRTC, does not tell its size and first values: embed PTX by go tool kernels -image compute_75, or use NVIDIA's NVRTC (docs/testing.md)", g->name);
		return NOT_SUPPORTED;
	}
	if (address)
		*address = g->block->address;
	if (size)
		*size = g->size;
	return OK;
}
