/* Modules, and the kernels in them. */
#pragma once

/* -- modules and kernels: module.c, kernel.c -- */

#define MOST_PARAMS 64
struct param { size_t offset, size; };

/* What a launch is told besides its size. */
enum { CLUSTER = 4 };
struct launch_attribute { unsigned id; CUkernelNodeAttrValue value; };

/* Attributes of a function. */
enum { MAX_THREADS = 0, LOCAL_SIZE = 3, PTX_VERSION = 5, BINARY_VERSION = 6, MAX_DYNAMIC = 8, SETTABLE = 16 };

/* A function is what an image says about a kernel, and what the program has set. */
struct function {
	char *name;
	CUfunction handle;
	CUkernel kernel_handle;
	struct module *module;
	const struct kernel *kernel; /* as it was found last, */
	unsigned found;              /* when there were so many */
	bool untold; /* the image says nothing about the parameters */
	struct param params[MOST_PARAMS];
	int nparams, max_threads, max_shared;
	int attributes[SETTABLE];
	bool loaded; /* onto the device, since a program asked for its handle */
};

/* A global is a variable that an image has. */
struct global {
	char *name;
	size_t size;
	char *bytes; /* at first, 0 for zeros */
	bool managed, constant, visible; /* the latter to what it is linked with */
	bool untold; /* the image tells no size and no values */
	struct block *block; /* once the module is loaded */
};

struct module {
	CUmodule handle;
	CUlibrary library;
	struct context *context; /* of a module; a library's is where it was used first */
	struct function *functions;
	struct global *globals;
	int nfunctions, nglobals;
	char *ptx; /* that is not compiled yet */
	bool left, purged; /* a library whose context has ended, or all of them */
};

/* A kernel is one that can run: one of a few that are built in, or one of the program's. */
struct kernel {
	const char *name;
	/* run does the work. It returns false as long as it has to be asked again. */
	bool (*run)(struct item *i);
	struct param params[MOST_PARAMS];
	int nparams; /* -1 where a kernel in C does not tell */
	/* of the program's */
	struct kernel *next;
	struct simParameter *told;
	size_t id;
	simRun go;
	void (*c)(const struct simGrid *g, void **args);
};
const struct kernel *builtin_find(const char *name);
/* kernel_of finds the kernel that a function is, or 0. */
const struct kernel *kernel_of(struct function *f);
/* kernel_fits tells whether a kernel, which may be 0, can run as a function. If not, it logs why. */
bool kernel_fits(const struct kernel *k, const struct function *f);
/* kernel_call runs a kernel of the program's, on a thread for them. */
void kernel_call(struct item *i);
/* kernel_rest is how many bytes there are from an address that a kernel uses. It is SIZE_MAX after a fault. */
size_t kernel_rest(struct item *i, CUdeviceptr address);
/* name_plain is the name in C++ of what a compiler's name stands for, with the arguments of a template or without. */
bool name_plain(const char *name, bool arguments, char *to, size_t size);
/* param_add appends a parameter. */
void param_add(struct param *params, int *n, size_t size, size_t align);
struct function *function_add(struct module *m, const char *name);

/* -- variables: variable.c -- */

struct global *global_add(struct module *m, const char *name, size_t size);
/* globals_make makes memory of them in a context, as they are at first. */
CUresult globals_make(struct module *m, struct context *c);
/* globals_free frees that memory. */
void globals_free(struct module *m);
struct global *global_named(struct module *m, const char *name);
/* global_get tells a variable to the program. */
CUresult global_get(const struct global *g, CUdeviceptr *address, size_t *size);
/* UNKNOWN_BYTE stands where an image has an address, which only CUDA can tell. */
#define UNKNOWN_BYTE 0xa5
/* list_grown has room for one more than n. */
void *list_grown(void *list, int n, size_t size);

/* contents_free frees what a text or an image has added. */
void contents_free(struct module *m);
/* ptx_read fills a module from a text. line is that where it stopped. */
CUresult ptx_read(struct module *m, const char *text, int *line);
bool ptx_looks(const char *image);
/* ptx_told writes why a text was refused. */
void ptx_told(char *to, size_t size, CUresult why, int line);
/* elf_read fills a module from machine code, of which it finds the names. */
CUresult elf_read(struct module *m, const void *image);
bool elf_looks(const void *image);
bool elf_newer(const void *image);
/* Where the compiler is to report errors. */
struct log { char *text; size_t size; };
/* jit_options reads the options of the compiler, and finds the log. */
CUresult jit_options(unsigned n, CUjit_option *options, void **values, struct log *l);
void links_end(struct context *c);
/* blocks_at_once is how many blocks a multiprocessor runs. */
int blocks_at_once(struct function *f, int threads, size_t shared);
#define MULTIPROCESSORS 132
CUresult function_get(CUfunction handle, struct function **f);
/* kernel_loaded tells whether the kernel's module is still there. */
bool kernel_loaded(const struct item *i);
/* kernel_item makes the work of a launch, whose stream does not count. */
CUresult kernel_item(const CUlaunchConfig *c, CUfunction handle, void **params, void **extra, struct item **i);
/* modules_end ends the modules of a context, but no library. */
void modules_end(struct context *c);
/* libraries_purge lets the libraries count as ended. */
void libraries_purge(void);
