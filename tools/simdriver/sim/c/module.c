#include "sim.h"

static struct module *modules[4096]; /* alive */

enum { INFO_LOG = 3, INFO_LOG_SIZE = 4, ERROR_LOG = 5, ERROR_LOG_SIZE = 6, OPTIMIZATION = 7, OPTIONS = 36 };

CUresult jit_options(unsigned n, CUjit_option *options, void **values, struct log *l)
{
	struct log said = {0};

	*l = said;
	if (n && (!options || !values))
		return INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		uintptr_t value = (uintptr_t)values[i];

		if (options[i] >= OPTIONS || (options[i] == OPTIMIZATION && (unsigned)value > 4))
			return INVALID_VALUE;
		if (options[i] == ERROR_LOG)
			l->text = values[i];
		if (options[i] == ERROR_LOG_SIZE)
			l->size = value;
		if (options[i] == INFO_LOG)
			said.text = values[i];
		if (options[i] == INFO_LOG_SIZE)
			said.size = value;
	}
	if (said.text && said.size)
		snprintf(said.text, said.size, "simulated driver: nothing is compiled here");
	return OK;
}

void *list_grown(void *list, int n, size_t size)
{
	return n & (n - 1) ? list : realloc(list, (n ? 2 * n : 1) * size);
}

struct function *function_add(struct module *m, const char *name)
{
	struct function *f;

	m->functions = list_grown(m->functions, m->nfunctions, sizeof *f);
	f = &m->functions[m->nfunctions++];
	*f = (struct function){.name = strdup(name), .max_threads = 1024, .attributes[8] = 49152};
	return f;
}

void contents_free(struct module *m)
{
	for (int i = 0; i < m->nfunctions; i++)
		free(m->functions[i].name);
	for (int i = 0; i < m->nglobals; i++) {
		free(m->globals[i].name);
		free(m->globals[i].bytes);
	}
	free(m->functions);
	free(m->globals);
}

static CUresult place(struct module *m)
{
	for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
		if (!modules[i]) {
			modules[i] = m;
			return OK;
		}
	return OUT_OF_MEMORY;
}

/* module_leave ends what a module has in its context. Of a library, only its handle is left. */
static void module_leave(struct module *m)
{
	for (int i = 0; i < m->nfunctions && m->context; i++) {
		handle_end(m->functions[i].handle);
		handle_end(m->functions[i].kernel_handle);
	}
	globals_free(m);
	if (m->handle)
		handle_end(m->handle);
	if (m->library)
		live_count(MODULE, m->handle != 0); /* counted as one */
	contents_free(m);
	m->functions = 0;
	m->globals = 0;
	m->nfunctions = m->nglobals = 0;
	m->handle = 0;
	m->context = 0;
	m->left = true;
}

static void module_end(struct module *m)
{
	module_leave(m);
	if (m->library)
		handle_end(m->library);
	if (m->purged)
		live_count(LIBRARY, 1);
	for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
		if (modules[i] == m)
			modules[i] = 0;
	free(m->ptx);
	free(m);
}

void modules_end(struct context *c)
{
	for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
		struct module *m = modules[i];

		if (!m || m->context != c)
			continue;
		if (m->library) { /* is of the process */
			module_leave(m);
			continue;
		}
		live_lost(1);
		module_end(m);
	}
}

void libraries_purge(void)
{
	for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
		if (modules[i] && modules[i]->library && !modules[i]->purged) {
			module_leave(modules[i]);
			modules[i]->purged = true; /* may still be unloaded, but does not count as alive */
			live_count(LIBRARY, -1);
		}
}

/* compile makes a module of an image usable in a context. */
static CUresult compile(struct module *m, struct context *c, struct log l)
{
	int line;
	CUresult r = m->ptx ? ptx_read(m, m->ptx, &line) : OK;

	if (r) {
		ptx_told(l.text, l.size, r, line);
		return r;
	}
	free(m->ptx);
	m->ptx = 0;
	if ((r = globals_make(m, c)))
		return r;
	m->context = c;
	for (int i = 0; i < m->nfunctions; i++) {
		struct function *f = &m->functions[i];

		f->module = m;
		f->handle = handle_new(FUNCTION, f);
		f->kernel_handle = handle_new(KERNEL, f);
	}
	return OK;
}

static CUresult read_image(const void *image, struct module **m)
{
	if (!image)
		return INVALID_VALUE;
	if (!ptx_looks(image) && !elf_looks(image))
		return INVALID_IMAGE;
	if (elf_looks(image) && elf_newer(image)) {
		logged("the machine code is of a newer major version of CUDA than the driver");
		return INVALID_IMAGE;
	}
	*m = calloc(1, sizeof **m);
	if (elf_looks(image))
		return elf_read(*m, image);
	(*m)->ptx = strdup(image);
	return OK;
}

/* file reads an image, which the caller frees. */
static CUresult file(const char *path, char **image)
{
	FILE *f = path ? fopen(path, "rb") : 0;
	size_t n = 0;

	if (!f)
		return path ? FILE_NOT_FOUND : INVALID_VALUE;
	*image = 0;
	do
		*image = realloc(*image, n + 65537);
	while ((n += fread(*image + n, 1, 65536, f)), !feof(f) && !ferror(f));
	(*image)[n] = 0;
	fclose(f);
	return OK;
}

static CUresult load(CUmodule *handle, const void *image, struct log l)
{
	struct module *m;
	CUresult r = handle ? read_image(image, &m) : INVALID_VALUE;

	if (r)
		return r;
	if ((r = compile(m, current(), l)) || (r = place(m))) {
		module_end(m);
		return r;
	}
	m->handle = *handle = handle_new(MODULE, m);
	return OK;
}

CUresult cuModuleLoad(CUmodule *handle, const char *path)
{
	ENTER(CURRENT);
	char *image;
	CUresult r = file(path, &image);

	if (r)
		return r;
	r = load(handle, image, (struct log){0});
	free(image);
	return r;
}

CUresult cuModuleLoadData(CUmodule *handle, const void *image)
{
	ENTER(CURRENT);
	return load(handle, image, (struct log){0});
}

CUresult cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned n, CUjit_option *options, void **values)
{
	ENTER(CURRENT);
	struct log l;
	CUresult r = jit_options(n, options, values, &l);

	return r ? r : load(handle, image, l);
}

/* unload waits for what runs. */
static CUresult unload(struct module *m)
{
	if (m->context && !sim.dead)
		context_wait(m->context);
	module_end(m);
	return sim.dead;
}

CUresult cuModuleUnload(CUmodule handle)
{
	ENTER(DEAD);
	struct module *m = handle_get(MODULE, handle);
	CUresult r;

	if (!m || m->library)
		return INVALID_HANDLE;
	if (!sim.dead && ((r = owner(m->context)) || (r = unsafe_call())))
		return r;
	return unload(m);
}

static CUresult module_get(CUmodule handle, struct module **m)
{
	if (!(*m = handle_get(MODULE, handle)))
		return INVALID_HANDLE;
	return owner((*m)->context);
}

static struct function *named(struct module *m, const char *name)
{
	for (int i = 0; name && i < m->nfunctions; i++)
		if (!strcmp(m->functions[i].name, name))
			return &m->functions[i];
	return 0;
}

CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module, const char *name)
{
	ENTER(0);
	struct module *m;
	struct function *f;
	CUresult r = module_get(module, &m);

	if (r)
		return r;
	if (!handle || !name)
		return INVALID_VALUE;
	if (!(f = named(m, name)))
		return NOT_FOUND;
	f->loaded = true;
	*handle = f->handle;
	return OK;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	ENTER(0);
	struct module *m;
	CUresult r = module_get(module, &m);

	if (r)
		return r;
	return name ? global_get(global_named(m, name), address, size) : INVALID_VALUE;
}

/* -- libraries: modules that are compiled for a context when they are first used there -- */

struct library {
	struct module *module;
	struct log log;
};

static CUresult library_load(CUlibrary *handle, const void *image, CUjit_option *options, void **values, unsigned n)
{
	struct library *l;
	struct module *m;
	struct log log;
	CUresult r = handle ? jit_options(n, options, values, &log) : INVALID_VALUE;

	if (r || (r = read_image(image, &m)))
		return r;
	l = calloc(1, sizeof *l);
	l->module = m;
	l->log = log;
	m->library = *handle = handle_new(LIBRARY, l);
	return place(m);
}

CUresult cuLibraryLoadData(CUlibrary *handle, const void *image, CUjit_option *options, void **values, unsigned n,
	CUlibraryOption *more, void **more_values, unsigned n_more)
{
	ENTER(0);
	(void)more, (void)more_values, (void)n_more;
	return library_load(handle, image, options, values, n);
}

CUresult cuLibraryLoadFromFile(CUlibrary *handle, const char *path, CUjit_option *options, void **values, unsigned n,
	CUlibraryOption *more, void **more_values, unsigned n_more)
{
	ENTER(0);
	char *image;
	CUresult r = file(path, &image);

	(void)more, (void)more_values, (void)n_more;
	if (r)
		return r;
	r = library_load(handle, image, options, values, n);
	free(image);
	return r;
}

/* use finds a library's module for the current context. Here it is the same for all uses, and none after that context. */
static CUresult use(CUlibrary handle, struct module **m)
{
	struct library *l = handle_get(LIBRARY, handle);
	CUresult r;

	if (!l)
		return INVALID_HANDLE;
	*m = l->module;
	if (!current())
		return INVALID_CONTEXT;
	if ((*m)->left)
		return NOT_SUPPORTED;
	if ((*m)->context)
		return (*m)->context == current() ? OK : NOT_SUPPORTED;
	if ((r = compile(*m, current(), l->log)))
		return r;
	(*m)->handle = handle_new(MODULE, *m);
	live_count(MODULE, -1);
	return OK;
}

CUresult cuLibraryUnload(CUlibrary handle)
{
	ENTER(DEAD);
	struct library *l = handle_get(LIBRARY, handle);
	struct module *m;
	CUresult r;

	if (!l)
		return INVALID_HANDLE;
	if (!sim.dead && (r = unsafe_call()))
		return r;
	m = l->module;
	free(l);
	return unload(m);
}

CUresult cuLibraryGetModule(CUmodule *handle, CUlibrary library)
{
	ENTER(0);
	struct module *m;
	CUresult r = use(library, &m);

	if (r)
		return r;
	if (!handle)
		return INVALID_VALUE;
	*handle = m->handle;
	return OK;
}

CUresult cuLibraryGetKernel(CUkernel *handle, CUlibrary library, const char *name)
{
	ENTER(0);
	struct module *m;
	struct function *f;
	CUresult r = use(library, &m);

	if (r)
		return r;
	if (!handle || !name)
		return INVALID_VALUE;
	if (!(f = named(m, name)))
		return NOT_FOUND;
	*handle = f->kernel_handle;
	return OK;
}

CUresult cuLibraryGetKernelCount(unsigned *n, CUlibrary library)
{
	ENTER(0);
	struct module *m;
	CUresult r = use(library, &m);

	if (r)
		return r;
	if (!n)
		return INVALID_VALUE;
	*n = m->nfunctions;
	return OK;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned n, CUlibrary library)
{
	ENTER(0);
	struct module *m;
	CUresult r = use(library, &m);

	if (r)
		return r;
	if (!kernels || !n)
		return INVALID_VALUE;
	for (unsigned i = 0; i < n && i < (unsigned)m->nfunctions; i++)
		kernels[i] = m->functions[i].kernel_handle;
	return OK;
}

static CUresult library_variable(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name, bool managed)
{
	struct module *m;
	struct global *g;
	CUresult r = use(library, &m);

	if (r)
		return r;
	if (!name)
		return INVALID_VALUE;
	g = global_named(m, name);
	return global_get(g && g->managed == managed ? g : 0, address, size);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	ENTER(0);
	return library_variable(address, size, library, name, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	ENTER(0);
	return library_variable(address, size, library, name, true);
}

CUresult cuKernelGetFunction(CUfunction *handle, CUkernel kernel)
{
	ENTER(CURRENT);
	struct function *f = handle_get(KERNEL, kernel);

	if (!f)
		return INVALID_HANDLE;
	if (!handle)
		return INVALID_VALUE;
	f->loaded = true;
	*handle = f->handle;
	return OK;
}
