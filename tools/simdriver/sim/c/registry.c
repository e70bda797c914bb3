#include "sim.h"

/*
 * The kernels of the program: functions that it registers, and those of a library
 * in C that lies beside this one. They run on a thread of their own, without the lock.
 */
static struct kernel *kernels; /* the latest first; they stay */
static unsigned changes = 1;   /* how often there were others */

/* reach checks the addresses that a kernel is launched with. */
static bool reach(struct item *i)
{
	const struct kernel *k = i->kernel;

	for (int n = 0; n < k->nparams; n++) {
		CUdeviceptr address = k->told[n].address ? *(CUdeviceptr *)i->params[n] : 0;

		if (!address)
			continue;
		if ((i->rest[n] = kernel_rest(i, address)) == SIZE_MAX)
			return false;
		if (address % k->told[n].align) {
			logged("kernel %s: parameter %d is an address that is not a multiple of %zu", k->name, n, k->told[n].align);
			sim.faulted = MISALIGNED_ADDRESS;
			return false;
		}
	}
	return true;
}

static bool begin(struct item *i)
{
	if (!i->rest) {
		i->rest = calloc(i->nparams + 1, sizeof *i->rest);
		if (!reach(i))
			i->finished = true;
		else
			elsewhere_push(i);
	}
	if (i->failed)
		sim.faulted = i->failed;
	return i->finished;
}

static struct item *running;

void simCondition(unsigned long long handle, unsigned value)
{
	pthread_mutex_lock(&sim.lock);
	if (!running) {
		violation("a condition is set, but no kernel runs");
	} else if (!condition_set(handle, value, running->context)) {
		logged("kernel %s: sets a condition that is not one of its context", running->kernel->name);
		running->failed = ILLEGAL_ADDRESS;
	}
	pthread_mutex_unlock(&sim.lock);
}

/* running_now tells why no kernel may use memory, or OK. */
static CUresult running_now(void)
{
	return !running ? NOT_PERMITTED : sim.dead || running->orphan ? ILLEGAL_ADDRESS : OK;
}

unsigned simMemory(unsigned long long address, size_t align, size_t *rest)
{
	CUresult r, before;

	pthread_mutex_lock(&sim.lock);
	before = sim.faulted;
	r = running_now();
	if (!r && (*rest = kernel_rest(running, address)) == SIZE_MAX)
		r = ILLEGAL_ADDRESS;
	if (!r && address % align)
		r = MISALIGNED_ADDRESS;
	sim.faulted = before; /* it is the kernel that fails, once it has returned */
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* variable finds one by its symbol or its name in C++. */
static const struct global *variable(struct module *m, const char *name)
{
	const struct global *g = global_named(m, name);
	char plain[1024];

	for (int i = 0; !g && i < m->nglobals; i++)
		if (name_plain(m->globals[i].name, false, plain, sizeof plain) && !strcmp(plain, name))
			g = &m->globals[i];
	return g;
}

unsigned simVariable(const char *name, CUdeviceptr *address, size_t *size)
{
	CUresult r;

	pthread_mutex_lock(&sim.lock);
	r = running_now();
	if (!r)
		r = global_get(variable(running->function->module, name), address, size);
	pthread_mutex_unlock(&sim.lock);
	return r;
}

/* of_module is simVariable for kernels in C, which cannot end in the middle. */
static void *of_module(const char *name, size_t *size)
{
	CUdeviceptr address = 0;
	size_t bytes = 0;

	if (simVariable(name, &address, &bytes)) {
		pthread_mutex_lock(&sim.lock);
		if (running) {
			logged("kernel %s: there is no variable %s in its module", running->kernel->name, name);
			running->failed = LAUNCH_FAILED;
		}
		pthread_mutex_unlock(&sim.lock);
	}
	if (size)
		*size = bytes;
	return (void *)(uintptr_t)address;
}

void kernel_call(struct item *i)
{
	const struct kernel *k = i->kernel;
	struct simGrid g = {.cluster = {1, 1, 1}, .shared = i->shared, .condition = simCondition, .variable = of_module};
	char why[400] = "";
	unsigned code = 0;

	if (sim.dead || i->orphan)
		return; /* there was a fault meanwhile */
	memcpy(g.grid, i->grid, sizeof g.grid);
	memcpy(g.block, i->threads, sizeof g.block);
	for (int n = 0; n < i->nattributes; n++)
		if (i->attributes[n].id == CLUSTER)
			memcpy(g.cluster, &i->attributes[n].value, sizeof g.cluster);
	running = i;
	pthread_mutex_unlock(&sim.lock);
	if (k->c)
		k->c(&g, i->params);
	else
		code = k->go(k->id, &g, i->params, i->rest, why, sizeof why);
	pthread_mutex_lock(&sim.lock);
	running = 0;
	if (code) {
		logged("kernel %s: %s", k->name, why);
		i->failed = code;
	}
}

static struct kernel *kernel_new(const char *name)
{
	struct kernel *k = calloc(1, sizeof *k);

	k->name = strdup(name);
	k->run = begin;
	k->next = kernels;
	kernels = k;
	changes++;
	return k;
}

void simKernel(const char *name, size_t id, simRun run, const struct simParameter *parameters, int n)
{
	struct kernel *k;

	pthread_mutex_lock(&sim.lock);
	k = kernel_new(name);
	k->id = id;
	k->go = run;
	k->told = memcpy(malloc((n + 1) * sizeof *parameters), parameters, n * sizeof *parameters);
	for (int i = 0; i < n && i < MOST_PARAMS; i++) {
		const struct simParameter *p = &parameters[i];

		param_add(k->params, &k->nparams, p->address ? 8 : p->size, p->address ? 8 : p->align);
	}
	pthread_mutex_unlock(&sim.lock);
}

void simInside(int on) { thread.in_callback = on; }

/* beside opens the library of kernels in the folder of this one, or returns 0. */
static void *beside(void)
{
	static void *library;
	static bool tried;
	char why[200];

	if (tried)
		return library;
	tried = true;
	library = os_library(SIM_KERNELS, why, sizeof why);
	if (*why)
		logged("the kernels were not loaded: %s", why);
	return library;
}

/* of_program finds a kernel of the program's by exactly this name. */
static struct kernel *of_program(const char *name)
{
	struct kernel *k = kernels;
	void *c;

	while (k && strcmp(k->name, name))
		k = k->next;
	if (k || !beside() || !(c = os_symbol(beside(), name)))
		return k;
	k = kernel_new(name);
	*(void **)&k->c = c;
	k->nparams = -1;
	return k;
}

static bool alike(const struct kernel *k, const struct function *f)
{
	if (k->nparams != f->nparams)
		return false;
	for (int n = 0; n < k->nparams; n++)
		if (k->params[n].size != f->params[n].size)
			return false;
	return true;
}

static const struct kernel *empty; /* what kernels are that nobody has registered, or 0 */

void simEmpty(int on)
{
	pthread_mutex_lock(&sim.lock);
	empty = on ? builtin_find("nothing") : 0;
	changes++;
	pthread_mutex_unlock(&sim.lock);
}

const struct kernel *kernel_of(struct function *f)
{
	char name[1024];

	if (f->found == changes)
		return f->kernel;
	f->kernel = of_program(f->name);
	for (int arguments = 1; !f->kernel && arguments >= 0; arguments--)
		if (name_plain(f->name, arguments, name, sizeof name))
			f->kernel = of_program(name);
	if (!f->kernel)
		f->kernel = builtin_find(f->name);
	if (empty && (!f->kernel || (f->kernel->run != begin && !f->untold && !alike(f->kernel, f))))
		f->kernel = empty;
	f->found = changes;
	return f->kernel;
}

/* sizes writes those of parameters. */
static const char *sizes(const struct param *p, int n, char *to, size_t size)
{
	size_t at = snprintf(to, size, n ? "" : "none");

	for (int k = 0; k < n && at < size; k++)
		at += snprintf(to + at, size - at, "%s%zu", k ? ", " : "", p[k].size);
	return to;
}

bool kernel_fits(const struct kernel *k, const struct function *f)
{
	char has[80], wants[80];
	bool builtin = k && k->run != begin;

	if (k && k == empty)
		return true;
	if (k && k->nparams < 0 && f->untold) {
		logged("kernel %s is in C, and its image does not tell its parameters: register it with sim.Control.Kernel, or use NVIDIA's NVRTC, by simdriver -nvrtc=false", f->name);
		return false;
	}
	if (k && (k->nparams < 0 || f->untold || alike(k, f)))
		return true;
	if (!k || builtin)
		logged("kernel %s is not registered with the simulated driver: register it with sim.Main or sim.Control.Kernel, or build it with simdriver -kernels", f->name);
	else
		logged("kernel %s has parameters of other sizes than the registered function: in bytes, %s against %s", f->name,
			sizes(f->params, f->nparams, has, sizeof has), sizes(k->params, k->nparams, wants, sizeof wants));
	return false;
}
