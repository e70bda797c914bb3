#include <limits.h>

#include "sim.h"

/* A user object has references of the program and of graphs and executables. */
struct user {
	CUuserObject handle;
	void (*destroy)(void *);
	void *data;
	unsigned long refs, own; /* all, and the program's */
	struct user *next;       /* of those whose destructors a thread owes */
};

struct users {
	int refs;
	struct held { struct user *user; unsigned long n; } *list;
	int n;
};

static __thread struct user *owed;

static void end(struct user *u, enum where where)
{
	handle_end(u->handle);
	if (where == HERE) {
		u->next = owed;
		owed = u;
		return;
	}
	struct item *i = item_new(DESTROY);

	i->host = u->destroy;
	i->data = u->data;
	i->orphan = true;
	elsewhere_push(i);
	free(u);
}

static void drop(struct user *u, unsigned long n, enum where where)
{
	u->refs -= n;
	if (!u->refs)
		end(u, where);
}

void users_finish(void)
{
	while (owed) {
		struct user *u = owed;
		bool before = thread.in_callback;

		owed = u->next;
		thread.in_callback = true;
		u->destroy(u->data);
		thread.in_callback = before;
		free(u);
	}
}

struct users *users_new(void)
{
	struct users *u = calloc(1, sizeof *u);

	u->refs = 1;
	return u;
}

static struct held *find(struct users *u, struct user *user)
{
	for (int i = 0; i < u->n; i++)
		if (u->list[i].user == user)
			return &u->list[i];
	return 0;
}

static void hold(struct users *u, struct user *user, unsigned long n)
{
	struct held *h = find(u, user);

	if (!h) {
		u->list = realloc(u->list, (u->n + 1) * sizeof *u->list);
		h = &u->list[u->n++];
		*h = (struct held){user, 0};
	}
	h->n += n;
}

void users_add(struct users *u, const struct users *from)
{
	for (int i = 0; i < from->n; i++) {
		hold(u, from->list[i].user, from->list[i].n);
		from->list[i].user->refs += from->list[i].n;
	}
}

struct users *users_copy(const struct users *from)
{
	struct users *u = users_new();

	users_add(u, from);
	return u;
}

struct users *users_share(struct users *u)
{
	u->refs++;
	return u;
}

void users_drop(struct users *u, enum where where)
{
	if (--u->refs)
		return;
	for (int i = 0; i < u->n; i++)
		drop(u->list[i].user, u->list[i].n, where);
	free(u->list);
	free(u);
}

static void end_each(enum kind kind, void *handle, void *object)
{
	(void)handle;
	if (kind == USER)
		end(object, HERE);
}

void users_end(void) { handles_each(end_each); }

CUresult cuUserObjectCreate(CUuserObject *handle, void *data, CUhostFn destroy, unsigned refs, unsigned flags)
{
	ENTER(0);
	struct user *u;

	if (!handle || !destroy || !refs || refs > INT_MAX || flags != 1)
		return INVALID_VALUE;
	u = calloc(1, sizeof *u);
	u->destroy = (void (*)(void *))destroy;
	u->data = data;
	u->refs = u->own = refs;
	u->handle = *handle = handle_new(USER, u);
	return OK;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned n)
{
	ENTER(DEAD);
	struct user *u = handle_get(USER, handle);

	if (!u || !n || n > INT_MAX)
		return INVALID_VALUE;
	u->refs += n;
	u->own += n;
	return OK;
}

/* give takes references from the program, which must have them. */
static bool give(struct user *u, unsigned n)
{
	if (n > u->own) {
		violation("%u references of a user object are given away, %lu are the program's", n, u->own);
		return false;
	}
	u->own -= n;
	return true;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned n)
{
	ENTER(DEAD);
	struct user *u = handle_get(USER, handle);

	if (!u || !n || n > INT_MAX || !give(u, n))
		return INVALID_VALUE;
	drop(u, n, HERE);
	return OK;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned n, unsigned flags)
{
	ENTER(DEAD, .does = ALTERS, .graph = graph);
	struct graph *g = graph_get(graph);
	struct user *u = handle_get(USER, handle);

	if (!g || !u || !n || n > INT_MAX || flags > 1 || (flags && !give(u, n)))
		return INVALID_VALUE;
	if (!flags)
		u->refs += n;
	hold(g->users, u, n);
	return OK;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned n)
{
	ENTER(DEAD, .does = ALTERS, .graph = graph);
	struct graph *g = graph_get(graph);
	struct user *u = handle_get(USER, handle);
	struct held *h = g && u ? find(g->users, u) : 0;

	if (!h || !n || n > h->n)
		return INVALID_VALUE;
	if (!(h->n -= n))
		*h = g->users->list[--g->users->n];
	drop(u, n, HERE);
	return OK;
}
