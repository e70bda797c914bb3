#include <stdarg.h>
#include <stdatomic.h>

#include "sim.h"

#define FAULT_DELAY 20000000 /* ns; a real fault takes five times as long */

struct sim sim = {
	.fault_delay = FAULT_DELAY,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.strict = SIM_VERSION < 13000,
};

static struct call *calls;
static struct call any; /* counts for all that are not bare */
static const char *failed = "";
static int violations;
static long resets;
static atomic_bool delays; /* there was one */
static char first[512];

static struct call *call_of(const char *name)
{
	struct call *c;

	if (!name)
		return &any;
	for (c = calls; c; c = c->next)
		if (!strcmp(c->name, name))
			return c;
	/* Not called yet: it is found by its name when it is. */
	c = calloc(1, sizeof *c);
	c->name = strdup(name);
	c->next = calls;
	return calls = c;
}

/* due counts a call and tells the code that it is to fail with. */
static CUresult due(struct call *c)
{
	if (++c->calls != c->fail_at)
		return OK;
	c->fail_at = 0;
	return c->fail;
}

/* known has a function take over what a test said of it before its first call. */
static void known(struct call *c)
{
	struct call *told;

	if (c->known)
		return;
	c->known = true;
	for (told = calls; told && strcmp(told->name, c->name); told = told->next)
		;
	if (told) {
		c->calls = told->calls;
		c->delay = told->delay;
		c->fail_at = told->fail_at;
		c->fail = told->fail;
		told->name = "";
	}
	c->next = calls;
	calls = c;
}

/* A pause is the delay of a call, which simReset cancels. */
struct pause {
	int64_t microseconds;
	long resets; /* before it */
};

static struct pause pause_of(struct call *c)
{
	struct pause p = {0, 0};

	if (!atomic_load(&delays)) /* most programs need no lock */
		return p;
	pthread_mutex_lock(&sim.lock);
	known(c);
	p = (struct pause){c->delay, resets};
	pthread_mutex_unlock(&sim.lock);
	return p;
}

/* sit_out waits without the lock. */
static void sit_out(struct pause p)
{
	int64_t end = now_ns() + p.microseconds * 1000;

	while (resets == p.resets && now_ns() < end) {
		pthread_mutex_unlock(&sim.lock);
		os_sleep(p.microseconds < 1000 ? p.microseconds : 1000);
		pthread_mutex_lock(&sim.lock);
	}
}

CUresult enter_call(struct call *c, struct flight *f)
{
	struct pause p = pause_of(c); /* before it flies: who sees that may say how long others take */
	unsigned needs;
	CUresult r, all;

	flight_begin(f);
	pthread_mutex_lock(&sim.lock);
	known(c);
	needs = c->needs;
	if (p.microseconds)
		sit_out(p);
	flight_check(f);
	r = due(c);
	all = needs & BARE ? OK : due(&any);
	r = r ? r : all;
	if (r)
		failed = c->name;
	if (!r && thread.in_callback && !(needs & CALLBACK))
		r = NOT_PERMITTED;
	if (!r && !sim.initialized && !(needs & EARLY))
		r = NOT_INITIALIZED;
	if (!r && sim.dead && !(needs & DEAD))
		r = sim.dead;
	if (!r && needs & CURRENT && !current())
		r = INVALID_CONTEXT;
	if (!r && needs & CURRENT && !current()->alive)
		r = CONTEXT_DESTROYED;
	return r;
}

void leave_call(struct flight *f)
{
	flight_end(f);
	pthread_mutex_unlock(&sim.lock);
	users_finish();
}

void await_change(void)
{
	sim.waiters++;
	pthread_cond_wait(&sim.changed, &sim.lock);
	sim.waiters--;
}

void violation(const char *format, ...)
{
	va_list list;

	if (violations++)
		return;
	va_start(list, format);
	vsnprintf(first, sizeof first, format, list);
	va_end(list);
	if (flight_name())
		snprintf(first + strlen(first), sizeof first - strlen(first), " (in %s)", flight_name());
}

void crash(const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	violation("%s", text);
	fprintf(stderr, "simulated driver: %s: CUDA crashes here\n", text);
	abort();
}

static void unlock(int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&sim.lock);
	users_finish();
}

#define LOCK() pthread_mutex_lock(&sim.lock); int locked_ __attribute__((cleanup(unlock), unused)) = 0

void simFail(const char *function, int64_t nth, unsigned code)
{
	LOCK();
	struct call *c = call_of(function);

	c->fail_at = nth > 0 ? c->calls + nth : 0;
	c->fail = code;
}

const char *simFailed(void)
{
	LOCK();
	return failed;
}

int64_t simCalls(const char *function)
{
	LOCK();
	return call_of(function)->calls;
}

void simDelay(const char *function, int64_t microseconds)
{
	LOCK();
	atomic_store(&delays, true);
	call_of(function)->delay = microseconds;
}

void simHold(int on)
{
	LOCK();
	sim.held = on;
	engine_wake();
}

void simFault(unsigned code)
{
	LOCK();
	if (sim.initialized && sim.fault_delay)
		fault_later(code);
	else
		fault(code);
}

void simFaultDelay(int64_t microseconds)
{
	LOCK();
	sim.fault_delay = microseconds * 1000;
}

void simReset(void)
{
	LOCK();
	resets++;
	for (struct call *c = calls; c; c = c->next)
		c->delay = c->fail_at = 0;
	any.fail_at = 0;
	failed = "";
	violations = 0;
	sim.held = false;
	if (sim.fault_at)
		fault(sim.fault_code); /* or the stuck work would block its stream */
	sim.dead = 0;
	sim.fault_delay = FAULT_DELAY;
	graph_odd(0);
	device_capability(0, 0);
	engine_wake();
}

int simViolations(void)
{
	LOCK();
	check_guards();
	return violations;
}

const char *simViolation(void)
{
	LOCK();
	return violations ? first : "";
}

void simStrict(int on)
{
	LOCK();
	sim.strict = on;
}

void simOddNodes(unsigned type)
{
	LOCK();
	graph_odd(type);
}
