//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rt_internal.h"

enum { /* linux/futex.h has them, but musl-gcc does not find it */
	FUTEX_WAIT_PRIVATE = 128,
	FUTEX_WAKE_PRIVATE = 129,
};

enum {
	SOONEST = 10 * 1000,     /* ns, the shortest interval between queries of an event */
	LATEST = 2000 * 1000,    /* ns, the longest */
	SHARE = 32,              /* the interval is 1/SHARE of the time waited so far */
	NEAR = 50 * 1000,        /* ns around the expected end, with the shortest interval */
	SPIN = 30 * 1000,        /* ns around the expected end in which rt_await queries all the time */
	SPARSE = 40 * 1000,      /* SOONEST of rt_await before that */
	SPARSE_SHARE = 8,        /* SHARE of the same */
	BATCH = 256,             /* completed events per call */
};

/* nap sleeps until ns have passed, or rt_wake changes the word. */
static void nap(struct rt_alarm *a, unsigned seen, long ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* by default a nap ends 50 µs late */
	__atomic_store_n(&a->asleep, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &a->word, FUTEX_WAIT_PRIVATE, seen, &t, 0, 0);
	__atomic_store_n(&a->asleep, 0, __ATOMIC_SEQ_CST);
	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

void rt_wake(unsigned char *alarm)
{
	struct rt_alarm *a = (struct rt_alarm *)alarm;

	__atomic_add_fetch(&a->word, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&a->asleep, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &a->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/* interval returns the time after t until the next query of an event. */
static long interval(const struct rt_entry *e, long t)
{
	long wait = (t - e->since) / SHARE;
	long left = e->since + e->expected - t; /* time until the expected end */

	if (e->expected && left > -NEAR && wait > SOONEST) {
		if (left < NEAR)
			return SOONEST;
		if (wait > left - NEAR)
			wait = left - NEAR;
	}
	if (wait >= LATEST) /* long waits become due together, after one nap */
		return LATEST - t % LATEST;
	return wait < SOONEST ? SOONEST : wait;
}

static CUresult query(const struct rt_entry *e)
{
	struct rt_call c = {e->context, e->home, e->id, .fn = RT_FN(cuEventQuery), .flags = RT_RELAX, .args = {e->event}};

	return rt_call((unsigned char *)&c);
}

/* pass queries the events that are due, and sets next to the time when one is due again. */
static unsigned pass(struct rt_entry *e, unsigned n, long *next)
{
	unsigned done = 0;
	long t = rt_now();

	*next = t + LATEST;
	for (unsigned i = 0; i < n && done < BATCH; i++, e++) {
		if (e->due > t) {
			*next = e->due < *next ? e->due : *next;
			continue;
		}
		if (!e->since)
			e->since = t;
		e->result = query(e);
		if (e->result != 600) {
			done++;
			continue;
		}
		e->due = t + interval(e, t);
		*next = e->due < *next ? e->due : *next;
	}
	return done;
}

/* sparse returns the time until the next query of an event of which left ns are expected, since ns after the first. */
static long sparse(long since, long left)
{
	long wait = since / SPARSE_SHARE < SPARSE ? SPARSE : since / SPARSE_SHARE;

	return wait < left - SPIN ? wait : left - SPIN;
}

/* rt_await waits for an event that is likely to complete in e->expected ns: see Go's Await. */
CUresult rt_await(unsigned char *entry)
{
	const struct rt_entry *e = (struct rt_entry *)entry;
	struct rt_alarm never = {0};
	long begin = rt_now(), t = begin;
	CUresult r;

	while ((r = query(e)) == 600 && (t = rt_now()) < begin + e->expected + SPIN) {
		long wait = sparse(t - begin, begin + e->expected - t);

		if (wait > 0)
			nap(&never, 0, wait);
	}
	return r;
}

/*
 * rt_poll polls events until some have completed or the alarm's word is not seen.
 * It sets the results and returns how many events have completed.
 */
unsigned rt_poll(unsigned char *entries, unsigned n, unsigned char *alarm, unsigned seen)
{
	struct rt_alarm *a = (struct rt_alarm *)alarm;
	unsigned done;
	long next;

	while (!(done = pass((struct rt_entry *)entries, n, &next)) && __atomic_load_n(&a->word, __ATOMIC_SEQ_CST) == seen) {
		long left = next - rt_now();

		if (left > 0)
			nap(a, seen, left);
	}
	return done;
}
