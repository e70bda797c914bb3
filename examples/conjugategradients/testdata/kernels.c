#include "simkernel.h"

/* The kernels of kernels.cu for the simulated driver. */

struct state {
	double rr, pq, next, goal;
	unsigned iterations, limit;
};

/* Parameter k of a kernel. */
#define STATE(k) (*(struct state **)args[k])
#define INTS(k) (*(int **)args[k])
#define DOUBLES(k) (*(double **)args[k])
#define INT(k) (*(int *)args[k])

void multiply(const struct simGrid *g, void **args)
{
	struct state *s = STATE(0);
	int *first = INTS(1), *column = INTS(2), n = INT(6);
	double *value = DOUBLES(3), *p = DOUBLES(4), *q = DOUBLES(5);

	for (int i = 0; i < n && (unsigned long)i < simThreads(g); i++) {
		q[i] = 0;
		for (int k = first[i]; k < first[i + 1]; k++)
			q[i] += value[k] * p[column[k]];
		s->pq += p[i] * q[i];
	}
}

void advance(const struct simGrid *g, void **args)
{
	struct state *s = STATE(0);
	double *p = DOUBLES(1), *q = DOUBLES(2), *x = DOUBLES(3), *r = DOUBLES(4);
	int n = INT(5);

	for (int i = 0; i < n && (unsigned long)i < simThreads(g); i++) {
		double alpha = s->rr / s->pq;

		x[i] += alpha * p[i];
		r[i] -= alpha * q[i];
		s->next += r[i] * r[i];
	}
}

void turn(const struct simGrid *g, void **args)
{
	struct state *s = STATE(0);
	double *r = DOUBLES(1), *p = DOUBLES(2);
	int n = INT(3);

	for (int i = 0; i < n && (unsigned long)i < simThreads(g); i++)
		p[i] = r[i] + s->next / s->rr * p[i];
}

void finish(const struct simGrid *g, void **args)
{
	struct state *s = STATE(0);

	s->rr = s->next;
	s->next = s->pq = 0;
	s->iterations++;
}

void repeat(const struct simGrid *g, void **args)
{
	struct state *s = STATE(1);

	g->condition(*(unsigned long long *)args[0], s->rr > s->goal && s->iterations < s->limit);
}
