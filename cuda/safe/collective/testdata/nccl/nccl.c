/* A double of NCCL for tests on the simulated driver: the functions that package collective calls, for the ranks of
 * one process. It computes right values, and can be told to hang, to take its time and to fail: control.h. That
 * something works with it says nothing about NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "control.h"

enum { SUCCESS, CUDA_FAILED, SYSTEM, INTERNAL, INVALID, USAGE, REMOTE };
enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };
enum { RANKS = 16, FACTORS = 4, FIRST_FACTOR = 16 };

typedef struct { char bytes[128]; } id_t128;
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking;
} config;
typedef void *stream_t;

/* A reg is the registration of a range of pages. It stays when it has ended, so that its users can tell. */
struct reg {
	struct comm *comm;
	uintptr_t address, begin, end;
	int refs, users;
	struct reg *next;
};

/* A factor is an operator that multiplies by a number here, or at an address. */
struct factor {
	bool used;
	int type;
	const void *at;
	char host[8];
};

/* A step is an operation that a rank waits for; the work of a call, or of a group, has several. */
struct step {
	int kind, type, op, peer;
	const char *src;
	char *dst;
	size_t count;
	struct reg *of[2]; /* the registrations of src and dst, or 0 */
	struct factor factor; /* of a scaled sum */
	struct work *work;
	struct step *next;
};

struct work {
	struct comm *comm;
	stream_t stream;
	struct step *steps;
	int left;
	bool captured;
	struct work *next;
};

struct world {
	id_t128 id;
	int size, joined, splits;
	_Atomic int ended;
	struct comm *ranks[RANKS];
	struct world *next;
};

struct comm {
	struct world *world;
	int rank, color, key;
	bool aborted, finalized, destroyed, splitting, calls, gone;
	uint32_t connected, sends, receives; /* whether it has begun a collective, and messages with whom */
	_Atomic int graphs; /* user objects of graphs and executables with its operations */
	void *context;
	volatile uint32_t *flag; /* 1 while no work of the rank is unfinished */
	struct step *pending, **tail;
	struct comm **child;
	struct reg *regs;
	struct factor factors[FACTORS];
	struct comm *next; /* in the group of the thread */
};

static struct control *control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct world *worlds;
static __thread int depth, refused; /* of the group, with its first error */
static __thread struct work *group;
static __thread struct comm *made, *divided, *ending; /* what the end of the group has to do */

static int (*launch)(stream_t, void (*)(void *), void *);
static int (*wait_value)(stream_t, uint64_t, uint32_t, unsigned);
static int (*host_alloc)(void **, size_t, unsigned);
static int (*host_free)(void *);
static int (*current)(void **);
static int (*make_current)(void *);
static int (*is_capturing)(stream_t, int *);
static int (*range_of)(uint64_t *, size_t *, uint64_t);
static int (*capture_of)(stream_t, int *, uint64_t *, void **, void **, size_t *);
static int (*user_object)(void **, void *, void (*)(void *), unsigned, unsigned);
static int (*exchange_mode)(int *);
static int (*retain)(void *graph, void *object, unsigned, unsigned);

static void *driver(const char *name)
{
	static void *file;
	if (!file)
		file = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	return file ? dlsym(file, name) : 0;
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("NCCL_DOUBLE");
	int file = path ? open(path, O_RDWR) : -1;
	if (file >= 0)
		control = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || control == MAP_FAILED)
		control = calloc(1, sizeof *control);
}

/* enter notes that a call on c begins. */
static void enter(struct comm *c)
{
	pthread_mutex_lock(&lock);
	if (c->gone)
		abort(); /* NCCL has freed it */
	if (c->calls)
		control->overlapped++;
	c->calls = true;
}

static int leave(struct comm *c, int code)
{
	if (depth && !refused)
		refused = code;
	c->calls = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return code;
}

/* await waits while blocked says so, or c is aborted. lock is held, and released meanwhile. */
static int await(struct comm *c, bool (*blocked)(struct comm *))
{
	if (!c->aborted && blocked(c)) {
		control->waiting++;
		while (!c->aborted && blocked(c))
			pthread_cond_wait(&changed, &lock);
		control->waiting--;
	}
	return c->aborted ? INTERNAL : SUCCESS;
}

/* take_time takes the time that a call takes. lock is held, and released meanwhile. */
static int take_time(struct comm *c)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	int64_t at = end.tv_nsec + (int64_t)control->busy * 1000000;
	end.tv_sec += at / 1000000000;
	end.tv_nsec = at % 1000000000;
	while (control->busy && !c->aborted && !pthread_cond_timedwait(&changed, &lock, &end))
		;
	return c->aborted ? INTERNAL : SUCCESS;
}

/* Registrations. */

/* registration returns the one that has all of a range, which lies in its pages. lock is held. */
static struct reg *registration(struct comm *c, const void *at, size_t size)
{
	uintptr_t begin = (uintptr_t)at;
	struct reg *r = c->regs;
	while (r && (!begin || !size || !r->refs || begin < r->begin || begin + size > r->end))
		r = r->next;
	return r;
}

/* use notes that an operation is in flight, or no more. lock is held. */
static void use(struct step *s, int by)
{
	for (int i = 0; i < 2; i++) {
		if (!s->of[i])
			continue;
		if (by > 0 && !s->of[i]->refs)
			control->used++; /* a graph runs again, and its registration has ended */
		s->of[i]->users += by;
	}
}

/* check_memory notes that the memory of a registration is not there any more. lock is held. */
static void check_memory(struct reg *r)
{
	void *before = 0;
	uint64_t start;
	size_t size;
	current(&before);
	make_current(r->comm->context);
	if (range_of(&start, &size, r->address))
		control->freed++;
	make_current(before);
}

/* Reductions. */

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

typedef struct { uint16_t bits; } bfloat16;

static float widened(bfloat16 v)
{
	uint32_t bits = (uint32_t)v.bits << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

/* rounded is the nearest bfloat16, and the even one of two. */
static bfloat16 rounded(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return (bfloat16){(bits + 0x7fff + (bits >> 16 & 1)) >> 16};
}

/* BY_TYPE does DO(T, V, READ, WRITE) for a type of NCCL: memory has values of T, which READ makes V to compute with, and WRITE
 * makes T again. */
#define BY_TYPE(type, DO) \
	switch (type) { \
	case 0: DO(int8_t, int8_t, , ); break; \
	case 1: DO(uint8_t, uint8_t, , ); break; \
	case 2: DO(int32_t, int32_t, , ); break; \
	case 3: DO(uint32_t, uint32_t, , ); break; \
	case 4: DO(int64_t, int64_t, , ); break; \
	case 5: DO(uint64_t, uint64_t, , ); break; \
	case 7: DO(float, float, , ); break; \
	case 8: DO(double, double, , ); break; \
	case 9: DO(bfloat16, float, widened, rounded); break; \
	}

static void combine(int type, int op, void *to, const void *from, size_t n)
{
#define COMBINE(T, V, READ, WRITE) \
	for (size_t i = 0; i < n; i++) { \
		V a = READ(((T *)to)[i]), b = READ(((const T *)from)[i]); \
		((T *)to)[i] = WRITE(op == 1 ? a * b : op == 2 ? (a > b ? a : b) : op == 3 ? (a < b ? a : b) : a + b); \
	}
	BY_TYPE(type, COMBINE)
}

static void divide(int type, void *to, size_t n, int by)
{
#define DIVIDE(T, V, READ, WRITE) \
	for (size_t i = 0; i < n; i++) \
		((T *)to)[i] = WRITE(READ(((T *)to)[i]) / (V)by)
	BY_TYPE(type, DIVIDE)
}

/* scale multiplies by the factor of a step, if it has one. */
static void scale(struct step *s, void *to, size_t n)
{
	const void *by = s->factor.at ? s->factor.at : s->factor.host;

	if (!s->factor.used)
		return;
#define SCALE(T, V, READ, WRITE) \
	for (size_t i = 0; i < n; i++) \
		((T *)to)[i] = WRITE(READ(((T *)to)[i]) * READ(*(const T *)by))
	BY_TYPE(s->type, SCALE)
}

/* compute does a collective of which every rank's step is there. */
static void compute(struct world *w, struct step **of)
{
	struct step *s = of[0];
	size_t size = sizes[s->type], bytes = s->count * size;
	size_t all = s->kind == REDUCE_SCATTER || s->kind == ALL_GATHER ? bytes * w->size : bytes;
	char *sum = malloc(all + 1);

	if (s->kind == ALL_GATHER) {
		for (int r = 0; r < w->size; r++)
			memcpy(sum + r * bytes, of[r]->src, bytes);
	} else if (s->kind == BROADCAST) {
		memcpy(sum, of[s->peer]->src, bytes);
	} else {
		char *part = malloc(all + 1);
		memcpy(sum, s->src, all);
		scale(s, sum, all / size);
		for (int r = 1; r < w->size; r++) {
			memcpy(part, of[r]->src, all);
			scale(of[r], part, all / size);
			combine(s->type, s->op, sum, part, all / size);
		}
		free(part);
		if (s->op == 4)
			divide(s->type, sum, all / size, w->size);
	}
	for (int r = 0; r < w->size; r++)
		if (s->kind == REDUCE_SCATTER)
			memcpy(of[r]->dst, sum + r * bytes, bytes);
		else if (s->kind != REDUCE || r == s->peer)
			memcpy(of[r]->dst, sum, all);
	free(sum);
}

/* take removes the first step of c that is such, or only finds it. */
static struct step *find(struct comm *c, bool collective, int kind, int peer, bool take)
{
	for (struct step **at = &c->pending; *at; at = &(*at)->next) {
		struct step *s = *at;
		if (collective ? s->kind >= SEND : s->kind != kind || s->peer != peer)
			continue;
		if (take && !(*at = s->next))
			c->tail = at;
		return s;
	}
	return 0;
}

static void done(struct step *s)
{
	use(s, -1);
	if (!--s->work->left)
		*s->work->comm->flag = 1;
}

/* match does what all ranks have arrived at. lock is held. */
static void match(struct world *w)
{
	struct step *of[RANKS], *s;
	bool again = true;

	while (again) {
		again = true;
		for (int r = 0; r < w->size; r++)
			again = again && w->ranks[r] && find(w->ranks[r], true, 0, 0, false);
		if (again) {
			for (int r = 0; r < w->size; r++)
				of[r] = find(w->ranks[r], true, 0, 0, true);
			compute(w, of);
			for (int r = 0; r < w->size; r++)
				done(of[r]);
		}
		for (int r = 0; r < w->size; r++)
			for (int p = 0; p < w->size; p++)
				if (w->ranks[r] && w->ranks[p] && find(w->ranks[r], false, SEND, p, false) && find(w->ranks[p], false, RECV, r, false)) {
					s = find(w->ranks[r], false, SEND, p, true);
					struct step *to = find(w->ranks[p], false, RECV, r, true);
					memcpy(to->dst, s->src, s->count * sizes[s->type]);
					done(s);
					done(to);
					again = true;
				}
	}
}

/* arrive runs on the driver's thread when the stream gets to the work. */
static void arrive(void *of)
{
	struct work *w = of;
	struct comm *c = w->comm;

	pthread_mutex_lock(&lock);
	if (!c->aborted) {
		*c->flag = 0;
		w->left = 0;
		for (struct step *s = w->steps; s; s = s->next)
			w->left++;
		if (!control->hang)
			for (struct step *s = w->steps; s; s = s->next) {
				struct step *copy = malloc(sizeof *copy); /* a graph comes again */
				*copy = *s;
				if (w->captured)
					use(s, 1);
				copy->next = 0;
				*c->tail = copy;
				c->tail = &copy->next;
			}
		match(c->world);
	}
	pthread_mutex_unlock(&lock);
}

static void forget(void *c) { ((struct comm *)c)->graphs--; }

/* refer makes the graph that a stream captures into refer to c, until the graph and its executables are gone. */
static bool refer(stream_t s, struct comm *c)
{
	uint64_t id;
	size_t n;
	int status;
	void *graph = 0, *deps, *object;

	if (capture_of(s, &status, &id, &graph, &deps, &n) || !graph || user_object(&object, c, forget, 1, 1))
		return false;
	c->graphs++;
	return !retain(graph, object, 1, 1);
}

/* peer returns another rank, or 0 if it is in another process. */
static struct comm *peer(struct comm *c, int rank) { return c->world->ranks[rank]; }

static bool missing(struct comm *c, int rank) { return !peer(c, rank) && !control->absent; }

/* unconnected tells whether another rank has yet to begin what c has begun. */
static bool unconnected(struct comm *c)
{
	for (int r = 0; r < c->world->size; r++) {
		struct comm *p = peer(c, r);
		if (missing(c, r))
			return true;
		if (p && p != c && ((c->connected && !p->connected) || (c->sends >> r & ~p->receives >> c->rank & 1) || (c->receives >> r & ~p->sends >> c->rank & 1)))
			return true;
	}
	return false;
}

/* begin tells the other ranks what w does, which they connect for. */
static void begin(struct work *w)
{
	pthread_mutex_lock(&lock);
	for (struct step *s = w->steps; s; s = s->next)
		if (s->kind == SEND)
			w->comm->sends |= 1u << s->peer;
		else if (s->kind == RECV)
			w->comm->receives |= 1u << s->peer;
		else
			w->comm->connected = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static int submit(struct work *w)
{
	enter(w->comm);
	int code = await(w->comm, unconnected);
	code = code ? code : take_time(w->comm);
	leave(w->comm, code);
	if (code)
		return code;
	void *before = 0;
	current(&before);
	make_current(w->comm->context); /* a group has several */
	int capturing = 0;
	bool failed = is_capturing(w->stream, &capturing);
	w->captured = capturing;
	pthread_mutex_lock(&lock);
	for (struct step *s = w->steps; s && !capturing; s = s->next)
		use(s, 1);
	pthread_mutex_unlock(&lock);
	failed = failed || (capturing && !refer(w->stream, w->comm));
	failed = failed || launch(w->stream, arrive, w) || wait_value(w->stream, (uint64_t)(uintptr_t)w->comm->flag, 1, 1);
	make_current(before);
	return failed ? CUDA_FAILED : SUCCESS;
}

static int add(struct comm *c, stream_t stream, struct step s)
{
	struct work *w = group, **last = &group;

	if (control->nothing)
		return SUCCESS;
	enter(c);
	control->element = s.type;
	control->operations++;
	int failed = control->fail;
	control->fail = 0;
	if (failed || c->finalized)
		return leave(c, failed ? failed : USAGE);
	if (c->aborted)
		return leave(c, INTERNAL);
	if (s.op >= FIRST_FACTOR && (!c->factors[s.op - FIRST_FACTOR].used || c->factors[s.op - FIRST_FACTOR].type != s.type))
		return leave(c, INVALID);
	if (c->splitting)
		return leave(c, INVALID); /* as NCCL refuses a communicator that is not ready */
	for (; w && (w->comm != c || w->stream != stream); w = w->next)
		last = &w->next;
	if (!w) {
		w = calloc(1, sizeof *w);
		w->comm = c;
		w->stream = stream;
		*last = w;
	}
	struct step *copy = malloc(sizeof *copy), **end = &w->steps;
	size_t bytes = s.count * sizes[s.type], all = bytes * c->world->size;
	if (s.op >= FIRST_FACTOR)
		s.factor = c->factors[s.op - FIRST_FACTOR];
	s.of[0] = registration(c, s.src, s.kind == REDUCE_SCATTER ? all : bytes);
	s.of[1] = registration(c, s.dst, s.kind == ALL_GATHER ? all : bytes);
	*copy = s;
	copy->work = w;
	copy->next = 0;
	while (*end)
		end = &(*end)->next;
	*end = copy;
	leave(c, 0);
	if (depth)
		return SUCCESS;
	group = 0;
	begin(w);
	return submit(w);
}

static bool unjoined(struct comm *c)
{
	if (control->hangs_init)
		return true;
	for (int r = 0; r < c->world->size; r++)
		if (missing(c, r))
			return true;
	return false;
}

/* create waits until all ranks are there. */
static int create(struct comm *c)
{
	enter(c);
	int code = await(c, unjoined);
	code = code ? code : take_time(c);
	return leave(c, code ? code : control->async);
}

static bool undivided(struct comm *c) { return c->splitting; }

static struct comm *new_comm(struct world *, int rank, void *context);
static struct world *world_of(const id_t128 *, int size);
int ncclGetUniqueId(id_t128 *);

/* separate waits until all ranks have split. A split that fails makes a communicator, too, which has to be aborted. */
static int separate(struct comm *c)
{
	enter(c);
	int code = await(c, undivided);
	if (c->splitting) {
		id_t128 id;
		ncclGetUniqueId(&id);
		*c->child = new_comm(world_of(&id, 1), 0, c->context);
		c->splitting = false;
	}
	return leave(c, code ? code : take_time(c));
}

static int end(struct comm *);

/* each does what the group has to do with communicators. */
static int each(struct comm **list, int (*f)(struct comm *))
{
	int code = SUCCESS;
	for (struct comm *c = *list, *next; c; c = next) {
		next = c->next;
		c->next = 0;
		int r = f(c);
		code = code ? code : r;
	}
	*list = 0;
	return code;
}

/* later has the end of the group do something with c, or does it now. */
static int later(struct comm *c, struct comm **list, int (*f)(struct comm *))
{
	c->next = *list;
	*list = c;
	return depth ? SUCCESS : each(list, f);
}

int ncclGroupStart(void)
{
	depth++;
	return SUCCESS;
}

int ncclGroupEnd(void)
{
	if (--depth)
		return SUCCESS;
	if (group)
		control->groups++;
	int code = refused, r;
	refused = 0;
	r = each(&made, create);
	code = code ? code : r;
	r = each(&divided, separate);
	code = code ? code : r;
	for (struct work *w = group; w && !code; w = w->next)
		begin(w);
	for (struct work *w = group, *next; w && !code; w = next) {
		next = w->next;
		w->next = 0;
		r = submit(w);
		code = code ? code : r;
	}
	group = 0;
	r = each(&ending, end);
	return code ? code : r;
}

int ncclAllReduce(const void *src, void *dst, size_t n, int type, int op, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = ALL_REDUCE, .src = src, .dst = dst, .count = n, .type = type, .op = op});
}

int ncclRedOpCreatePreMulSum(int *op, const void *scalar, int type, int residence, struct comm *c)
{
	int i = 0;

	enter(c);
	while (i < FACTORS && c->factors[i].used)
		i++;
	if (i == FACTORS)
		return leave(c, INTERNAL); /* NCCL has more, but they must not pile up */
	c->factors[i] = (struct factor){.used = true, .type = type, .at = residence == 0 ? scalar : 0};
	if (residence)
		memcpy(c->factors[i].host, scalar, sizes[type]);
	*op = FIRST_FACTOR + i;
	return leave(c, SUCCESS);
}

int ncclRedOpDestroy(int op, struct comm *c)
{
	enter(c);
	bool used = op >= FIRST_FACTOR && c->factors[op - FIRST_FACTOR].used;
	if (used)
		c->factors[op - FIRST_FACTOR].used = false;
	return leave(c, used ? SUCCESS : INVALID);
}

int ncclReduce(const void *src, void *dst, size_t n, int type, int op, int root, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = REDUCE, .src = src, .dst = dst, .count = n, .type = type, .op = op, .peer = root});
}

int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int op, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = REDUCE_SCATTER, .src = src, .dst = dst, .count = n, .type = type, .op = op});
}

int ncclAllGather(const void *src, void *dst, size_t n, int type, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = ALL_GATHER, .src = src, .dst = dst, .count = n, .type = type});
}

int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = BROADCAST, .src = src, .dst = dst, .count = n, .type = type, .peer = root});
}

int ncclSend(const void *src, size_t n, int type, int peer, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = SEND, .src = src, .count = n, .type = type, .peer = peer});
}

int ncclRecv(void *dst, size_t n, int type, int peer, struct comm *c, stream_t s)
{
	return add(c, s, (struct step){.kind = RECV, .dst = dst, .count = n, .type = type, .peer = peer});
}

#ifndef BEFORE_2_28

/* exchange makes an operation of messages: of parts of src to all and of all to dst, or with root from or to that alone. */
static int exchange(const char *src, char *dst, size_t n, int type, int to, int from, struct comm *c, stream_t s)
{
	size_t bytes = n * sizes[type];
	ncclGroupStart();
	for (int r = 0; r < c->world->size; r++) {
		if (to < 0 ? from < 0 || from == c->rank : to == r)
			ncclSend(src + (to < 0 ? r * bytes : 0), n, type, r, c, s);
		if (from < 0 ? to < 0 || to == c->rank : from == r)
			ncclRecv(dst + (from < 0 ? r * bytes : 0), n, type, r, c, s);
	}
	return ncclGroupEnd();
}

int ncclAlltoAll(const void *src, void *dst, size_t n, int type, struct comm *c, stream_t s)
{
	return exchange(src, dst, n, type, -1, -1, c, s);
}

int ncclGather(const void *src, void *dst, size_t n, int type, int root, struct comm *c, stream_t s)
{
	return exchange(src, dst, n, type, root, -1, c, s);
}

int ncclScatter(const void *src, void *dst, size_t n, int type, int root, struct comm *c, stream_t s)
{
	return exchange(src, dst, n, type, -1, root, c, s);
}

#endif

/* Communicators. */

int ncclGetVersion(int *version)
{
#ifdef BEFORE_2_22
	*version = 22000;
#else
	*version = 22800;
#endif
	return SUCCESS;
}

const char *ncclGetErrorString(int code) { return code ? "an error of the double" : "no error"; }
const char *ncclGetLastError(struct comm *c) { return c ? "of a communicator" : "told by a test"; }

int ncclGetUniqueId(id_t128 *id)
{
	__atomic_add_fetch(&control->identified, 1, __ATOMIC_RELAXED);
	const char *set = getenv("NCCL_NVLS_ENABLE");
	control->multicast = set ? atoi(set) : -1;
	memset(id, 0, sizeof *id);
	*(int *)id->bytes = getpid();
	static int last;
	((int *)id->bytes)[1] = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return SUCCESS;
}

static struct comm *new_comm(struct world *w, int rank, void *context)
{
	struct comm *c = calloc(1, sizeof *c);
	c->world = w;
	c->rank = rank;
	c->tail = &c->pending;
	w->ranks[rank] = c;
	w->joined++;
	control->live++;
	void *before = 0;
	current(&before);
	make_current(context);
	host_alloc((void **)&c->flag, 4, 0);
	make_current(before);
	*c->flag = 1;
	c->context = context;
	pthread_cond_broadcast(&changed);
	return c;
}

static struct world *world_of(const id_t128 *id, int size)
{
	struct world *w;
	for (w = worlds; w; w = w->next)
		if (!memcmp(&w->id, id, sizeof *id))
			return w;
	w = calloc(1, sizeof *w);
	w->id = *id;
	w->size = size;
	w->next = worlds;
	return worlds = w;
}

int ncclCommInitRankConfig(struct comm **out, int size, id_t128 id, int rank, const config *cfg)
{
	if (!out || size < 1 || size > RANKS || rank < 0 || rank >= size || cfg->magic != 0xcafebeef)
		return INVALID;
	launch = driver("cuLaunchHostFunc");
	wait_value = driver("cuStreamWaitValue32_v2");
	host_alloc = driver("cuMemHostAlloc");
	host_free = driver("cuMemFreeHost");
	current = driver("cuCtxGetCurrent");
	make_current = driver("cuCtxSetCurrent");
	is_capturing = driver("cuStreamIsCapturing");
	range_of = driver("cuMemGetAddressRange_v2");
	exchange_mode = driver("cuThreadExchangeStreamCaptureMode");
	capture_of = driver("cuStreamGetCaptureInfo_v2");
	user_object = driver("cuUserObjectCreate");
	retain = driver("cuGraphRetainUserObject");
	void *context = 0;
	if (!launch || !wait_value || !host_alloc || !host_free || !current || !make_current || !is_capturing || !range_of || current(&context) || !context)
		return SYSTEM;
	pthread_mutex_lock(&lock);
	control->polled += cfg->blocking != 1;
	*out = new_comm(world_of(&id, size), rank, context);
	pthread_mutex_unlock(&lock);
	return later(*out, &made, create);
}

int ncclCommInitRankScalable(struct comm **out, int size, int rank, int n, const id_t128 *ids, const config *cfg)
{
	return n < 1 || n > size ? INVALID : ncclCommInitRankConfig(out, size, ids[n - 1], rank, cfg);
}

/* split makes the children once all ranks have called. */
static void split(struct world *w)
{
	if (++w->splits < w->size)
		return;
	w->splits = 0;
	for (int r = 0; r < w->size; r++) {
		struct comm *c = w->ranks[r];
		if (!c->splitting)
			continue;
		c->splitting = false;
		*c->child = 0;
		if (c->color < 0)
			continue;
		id_t128 id;
		ncclGetUniqueId(&id);
		struct world *new = world_of(&id, 0);
		struct comm *same[RANKS];
		for (int p = 0; p < w->size; p++) {
			struct comm *o = w->ranks[p];
			if (o != c && (!o->splitting || o->color != c->color))
				continue;
			o->splitting = false;
			int at = new->size++;
			for (; at > 0 && same[at - 1]->key > o->key; at--)
				same[at] = same[at - 1];
			same[at] = o;
		}
		for (int p = 0; p < new->size; p++)
			*same[p]->child = new_comm(new, p, same[p]->context);
	}
	pthread_cond_broadcast(&changed);
}

int ncclCommSplit(struct comm *c, int color, int key, struct comm **child, const config *cfg)
{
	(void)cfg;
	enter(c);
	c->color = color;
	c->key = key;
	c->child = child;
	c->splitting = true;
	split(c->world);
	leave(c, SUCCESS);
	return later(c, &divided, separate);
}

int ncclCommGetAsyncError(struct comm *c, int *code)
{
	enter(c);
	*code = control->async;
	return leave(c, SUCCESS);
}

int ncclCommCount(struct comm *c, int *n)
{
	*n = c->world->size;
	return SUCCESS;
}

int ncclCommUserRank(struct comm *c, int *n)
{
	*n = c->rank;
	return SUCCESS;
}

static bool hangs(struct comm *c)
{
	(void)c;
	return control->hangs_final;
}

int ncclCommFinalize(struct comm *c)
{
	enter(c);
	control->finalized++;
	c->finalized = true;
	pthread_cond_broadcast(&changed);
	int code = await(c, hangs);
	return leave(c, code ? code : take_time(c));
}

#ifndef BEFORE_2_19

int ncclCommRegister(struct comm *c, void *at, size_t size, void **handle)
{
	uintptr_t page = sysconf(_SC_PAGESIZE), begin = (uintptr_t)at & -page, end = ((uintptr_t)at + size + page - 1) & -page;

	enter(c);
	if (c->finalized || c->aborted)
		return leave(c, c->aborted ? INTERNAL : USAGE);
	int failed = control->fail;
	control->fail = 0;
	if (failed)
		return leave(c, failed);
	*handle = 0;
	if (control->skips)
		return leave(c, take_time(c));
	struct reg *r = c->regs;
	while (r && (!r->refs || r->begin > begin || r->end < end))
		r = r->next;
	if (!r) {
		r = calloc(1, sizeof *r);
		*r = (struct reg){.comm = c, .address = (uintptr_t)at, .begin = begin, .end = end, .next = c->regs};
		c->regs = r;
	}
	r->refs++;
	control->registered++;
	*handle = r;
	return leave(c, take_time(c));
}

int ncclCommDeregister(struct comm *c, void *handle)
{
	struct reg *r;

	enter(c);
	for (r = c->regs; r && r != handle; r = r->next)
		;
	if (c->aborted)
		return leave(c, INTERNAL);
	if (!r || !r->refs || c->finalized) {
		control->stale++;
		return leave(c, USAGE);
	}
	int failed = control->fail;
	control->fail = 0;
	if (failed)
		return leave(c, failed);
	control->deregistered++;
	check_memory(r);
	if (!--r->refs && r->users)
		control->used++;
	return leave(c, take_time(c));
}

#endif

/* clean ends the registrations of a rank. lock is held. */
static void clean(struct comm *c)
{
	for (struct reg *r = c->regs; r; r = r->next) {
		if (!r->refs)
			continue;
		check_memory(r);
		control->cleaned += r->refs;
		r->refs = 0;
	}
}

/* end ends a rank. As NCCL does, the last one waits for the graphs of all ranks of the process, and releases what all
 * have. */
static int end(struct comm *c)
{
	struct world *w = c->world;
	bool last = ++w->ended >= w->joined;
	int mode = 2; /* RELAXED */
	exchange_mode(&mode);
	control->strict += mode != 2;
	exchange_mode(&mode);
	for (int r = 0; last && r < w->size; r++)
		while (w->ranks[r] && w->ranks[r]->graphs)
			usleep(1000);
	enter(c);
	for (int r = 0; last && r < w->size; r++)
		if (w->ranks[r])
			clean(w->ranks[r]);
	c->aborted = c->gone = true;
	*c->flag = 1; /* the streams go on */
	control->live--;
	return leave(c, SUCCESS);
}

static bool unfinalized(struct comm *c)
{
	for (int r = 0; r < c->world->size; r++)
		if (peer(c, r) && !peer(c, r)->finalized && !peer(c, r)->aborted)
			return true;
	return false;
}

/* Ranks of one machine wait here for each other, and nothing can end that. */
int ncclCommDestroy(struct comm *c)
{
	if (!c->finalized)
		return USAGE;
	pthread_mutex_lock(&lock);
	c->destroyed = true;
	while (unfinalized(c))
		pthread_cond_wait(&changed, &lock);
	bool hung = control->hangs_destroy;
	control->waiting += hung;
	pthread_mutex_unlock(&lock);
	while (control->hangs_destroy)
		usleep(1000);
	pthread_mutex_lock(&lock);
	control->waiting -= hung;
	control->destroyed++;
	pthread_mutex_unlock(&lock);
	int code = end(c);
	host_free((void *)c->flag);
	return code;
}

int ncclCommAbort(struct comm *c)
{
	control->aborted++;
	pthread_mutex_lock(&lock);
	if (c->destroyed || c->gone)
		abort(); /* NCCL frees it meanwhile, or has */
	c->aborted = true;
	*c->flag = 1; /* the streams go on; the flag stays, for waits that are enqueued */
	pthread_cond_broadcast(&changed);
#ifdef BEFORE_2_22
	while (c->calls) /* NCCL takes longer than they do */
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return end(c);
#else
	pthread_mutex_unlock(&lock);
	return later(c, &ending, end);
#endif
}
