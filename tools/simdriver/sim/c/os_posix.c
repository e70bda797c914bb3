#ifndef _WIN32
#include "sim.h" /* first: it says which of the system's functions there are */

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void os_timed(pthread_cond_t *c)
{
	pthread_condattr_t clock;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(c, &clock);
}

void os_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t time)
{
	struct timespec t = {time / 1000000000, time % 1000000000};

	pthread_cond_timedwait(c, m, &t);
}

void os_start(void *(*f)(void *), void *data)
{
	pthread_t thread;

	pthread_create(&thread, 0, f, data);
	pthread_detach(thread);
}

int os_thread(void) { return gettid(); }
int os_process(void) { return getpid(); }
void os_yield(void) { sched_yield(); }
void os_sleep(int64_t us) { usleep(us); }

static void *map(size_t size, int access)
{
	void *at = mmap(0, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? 0 : at;
}

void *os_memory(size_t size) { return map(size, PROT_READ | PROT_WRITE); }
void *os_reserve(size_t size) { return os_memory(size); }

void os_commit(void *at, size_t size)
{
	(void)at;
	(void)size;
}

void os_forget(void *at, size_t size) { madvise(at, size, MADV_DONTNEED); }

void *os_span(size_t size) { return map(size, PROT_NONE); }

intptr_t os_shared(size_t size)
{
	int file = memfd_create("simulated device memory", MFD_CLOEXEC);

	if (file >= 0 && ftruncate(file, size)) {
		close(file);
		return -1;
	}
	return file;
}

void os_unshare(intptr_t memory) { close(memory); }

bool os_map(void *at, size_t size, intptr_t memory)
{
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) != MAP_FAILED;
}

void os_unmap(void *at, size_t size)
{
	mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int64_t os_file_size(int file)
{
	struct stat about;

	return fstat(file, &about) ? -1 : about.st_size;
}

void *os_file_map(int file, size_t offset, size_t size)
{
	void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);

	return at == MAP_FAILED ? 0 : at;
}

void os_file_unmap(void *at, size_t size) { munmap(at, size); }

int os_file_new(const void *bytes, size_t n)
{
	int file = memfd_create("simulated memory pool", 0);

	if (file >= 0 && write(file, bytes, n) != (ssize_t)n) {
		close(file);
		return -1;
	}
	return file;
}

bool os_file_read(int file, void *bytes, size_t n) { return pread(file, bytes, n, 0) == (ssize_t)n; }
int os_file_copy(int file) { return dup(file); }
void os_file_close(int file) { close(file); }

void *os_library(const char *name, char *why, size_t room)
{
	char file[PATH_MAX];
	Dl_info self;
	const char *end;
	void *library;

	*why = 0;
	if (!dladdr((void *)os_library, &self) || !(end = strrchr(self.dli_fname, '/')))
		return 0;
	snprintf(file, sizeof file, "%.*s/%s", (int)(end - self.dli_fname), self.dli_fname, name);
	library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library && !access(file, F_OK))
		snprintf(why, room, "%s", dlerror());
	return library;
}

void *os_symbol(void *library, const char *name) { return dlsym(library, name); }
/* on_disk tells whether the file system of a path, such as "/tmp/x (deleted)", keeps files on a disk. */
static bool on_disk(char *path)
{
	enum { TMPFS = 0x01021994, RAMFS = 0x858458f6, HUGETLBFS = 0x958458f6 };
	struct statfs s;
	char *folder = strrchr(path, '/');

	if (strncmp(path, "/memfd:", 7) == 0 || !folder)
		return false;
	if (statfs(path, &s)) {
		*folder = 0;
		if (statfs(path, &s))
			return true;
	}
	return (unsigned)s.f_type != TMPFS && (unsigned)s.f_type != RAMFS && (unsigned)s.f_type != HUGETLBFS;
}

/* mapped tells whether a mapping of the range is read-only, or with private_file a private one of a file on a disk. */
static bool mapped(uintptr_t from, size_t size, bool private_file)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char *line = 0, access[5];
	size_t room = 0;
	uintptr_t start, end;
	bool found = false;

	while (maps && !found && getline(&line, &room, maps) > 0) {
		int path = 0;

		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %n", &start, &end, access, &path) < 3 || start >= from + size || end <= from)
			continue;
		if (private_file)
			found = access[3] == 'p' && line[path] == '/' && on_disk(line + path);
		else
			found = access[1] != 'w';
	}
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

bool os_read_only(uintptr_t from, size_t size) { return mapped(from, size, false); }
bool os_private_file(uintptr_t from, size_t size) { return mapped(from, size, true); }
#endif
