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
	SPIN = 30 * 1000,        /* ns around the expected end of a steady wait, in which its event is queried all the time */
	SPARSE = 40 * 1000,      /* SOONEST of a steady wait, before it spins */
	SPARSE_SHARE = 8,        /* SHARE of the same */
	FEW = 4,                 /* entries beside which one is treated as steady */
	BATCH = 256,             /* completed events per call */
};

/* nap sleeps until ns have passed, or rt_wake changes the word. */
static void nap(struct rt_alarm *a, unsigned seen, long ns)
{
	struct timespec t = {ns / 1000000000, ns % 1000000000};

	__atomic_store_n(&a->asleep, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &a->word, FUTEX_WAIT_PRIVATE, seen, &t, 0, 0);
	__atomic_store_n(&a->asleep, 0, __ATOMIC_SEQ_CST);
}

void rt_wake(unsigned char *alarm)
{
	struct rt_alarm *a = (struct rt_alarm *)alarm;

	__atomic_add_fetch(&a->word, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&a->asleep, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &a->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/* interval returns the time after t until the next query of an event, one of n. */
static long interval(const struct rt_entry *e, long t, unsigned n)
{
	long wait = (t - e->since) / SHARE;
	long left = e->since + e->expected - t; /* time until the expected end */

	if (e->steady && n <= FEW && left > -SPIN) {
		if (left <= SPIN)
			return 0;
		wait = (t - e->since) / SPARSE_SHARE;
		if (wait < SPARSE)
			wait = SPARSE;
		if (wait > LATEST)
			wait = LATEST;
		return wait < left - SPIN ? wait : left - SPIN;
	}
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
		e->due = t + interval(e, t, n);
		*next = e->due < *next ? e->due : *next;
	}
	return done;
}

/*
 * rt_poll polls events until some have completed or the alarm's word is not seen.
 * It sets the results and returns how many events have completed.
 */
unsigned rt_poll(unsigned char *entries, unsigned n, unsigned char *alarm, unsigned seen)
{
	struct rt_alarm *a = (struct rt_alarm *)alarm;
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	unsigned done;
	long next;

	while (!(done = pass((struct rt_entry *)entries, n, &next)) && __atomic_load_n(&a->word, __ATOMIC_SEQ_CST) == seen) {
		long left = next - rt_now();

		if (left <= 0)
			continue;
		if (slack > 1)
			prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* by default a nap ends 50 µs late */
		nap(a, seen, left);
		if (slack > 1)
			prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
	}
	return done;
}
