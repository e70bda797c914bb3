#include "sim.h"

/* What counts as alive. */
static struct {
	const char *name;
	int alive;
} kinds[] = {
	[CONTEXT] = {"context", 0}, [STREAM] = {"stream", 0}, [EVENT] = {"event", 0}, [MODULE] = {"module", 0},
	[LIBRARY] = {"module", 0}, [GRAPH] = {"graph", 0}, [EXEC] = {"exec", 0},
	[USER] = {"userobject", 0}, [GREEN] = {"green", 0}, [LINKER] = {"linker", 0}, [POOL] = {"pool", 0},
	[TEXTURE] = {"texture", 0}, [SURFACE] = {"surface", 0},
	[EXTERNAL_MEMORY] = {"external", 0}, [EXTERNAL_SEMAPHORE] = {"external", 0},
};
static int lost;

#define COUNTED (enum kind)(sizeof kinds / sizeof *kinds)


void live_count(enum kind kind, int by)
{
	if (kind < COUNTED)
		kinds[kind].alive += by;
}

void live_lost(int n) { lost += n; }

static int retained(void)
{
	int n = 0;

	for (int i = 0; i < MAX_DEVICES; i++)
		n += devices[i].primary.refs;
	return n;
}

static const struct {
	const char *name;
	enum place place;
} places[] = {
	{"memory", DEVICE_MEMORY}, {"memory", MANAGED_MEMORY}, {"async", ASYNC_MEMORY}, {"host", HOST_MEMORY}, {"ipc", IPC_MEMORY},
	{"array", ARRAY_MEMORY},
};

static int live(const char *kind)
{
	int n = 0;

	for (enum kind i = 0; i < COUNTED; i++)
		if (kinds[i].name && (!kind || !strcmp(kind, kinds[i].name)))
			n += kinds[i].alive;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (!kind || !strcmp(kind, places[i].name))
			n += blocks_alive(places[i].place);
	if (!kind || !strcmp(kind, "registered"))
		n += registered_alive();
	if (!kind || !strcmp(kind, "physical"))
		n += physical_alive();
	if (!kind || !strcmp(kind, "reserved"))
		n += reserved_alive();
	if (!kind || !strcmp(kind, "external"))
		n += external_mappings();
	if (!kind || !strcmp(kind, "primary"))
		n += retained();
	return n;
}

int simLive(const char *kind)
{
	pthread_mutex_lock(&sim.lock);
	int n = live(kind);
	pthread_mutex_unlock(&sim.lock);
	return n;
}

int simLost(void)
{
	pthread_mutex_lock(&sim.lock);
	int n = lost;
	lost = 0;
	pthread_mutex_unlock(&sim.lock);
	return n;
}

void simList(char *text, size_t size)
{
	static const char *const all[] = {
		"primary", "context", "stream", "event", "module", "graph", "exec", "userobject", "physical", "reserved", "linker", "green", "ipc",
		"pool", "memory", "async", "host", "registered", "array", "texture", "surface", "external",
	};
	size_t at = 0;

	pthread_mutex_lock(&sim.lock);
	if (size)
		*text = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all && at < size; i++)
		if (live(all[i]))
			at += snprintf(text + at, size - at, "%d %s\n", live(all[i]), all[i]);
	pthread_mutex_unlock(&sim.lock);
}

void simPurge(void)
{
	pthread_mutex_lock(&sim.lock);
	contexts_end();
	libraries_purge();
	externals_end(0);
	graphs_end();
	pools_end();
	registered_end();
	virtual_end();
	pthread_mutex_unlock(&sim.lock);
	users_finish();
}
