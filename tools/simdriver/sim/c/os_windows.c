#ifdef _WIN32
#include <windows.h> /* alone: it has other things by the names of sim.h */

#include <stdio.h>

#include "os.h"

void pthread_mutex_lock(pthread_mutex_t *m) { AcquireSRWLockExclusive((SRWLOCK *)m); }
void pthread_mutex_unlock(pthread_mutex_t *m) { ReleaseSRWLockExclusive((SRWLOCK *)m); }
void pthread_cond_signal(pthread_cond_t *c) { WakeConditionVariable((CONDITION_VARIABLE *)c); }
void pthread_cond_broadcast(pthread_cond_t *c) { WakeAllConditionVariable((CONDITION_VARIABLE *)c); }

void pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	SleepConditionVariableSRW((CONDITION_VARIABLE *)c, (SRWLOCK *)m, INFINITE, 0);
}

int64_t now_ns(void)
{
	static LARGE_INTEGER frequency;
	LARGE_INTEGER count;

	if (!frequency.QuadPart)
		QueryPerformanceFrequency(&frequency);
	QueryPerformanceCounter(&count);
	return count.QuadPart / frequency.QuadPart * 1000000000 + count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

void os_timed(pthread_cond_t *c) { (void)c; }

/* os_wait_until may end up to 1 ms early or late. */
void os_wait_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t time)
{
	int64_t left = (time - now_ns() + 999999) / 1000000;

	SleepConditionVariableSRW((CONDITION_VARIABLE *)c, (SRWLOCK *)m, left < 0 ? 0 : left < 1000000 ? left : 1000000, 0);
}

struct start {
	void *(*f)(void *);
	void *data;
};

static DWORD WINAPI begin(void *start)
{
	struct start s = *(struct start *)start;

	HeapFree(GetProcessHeap(), 0, start);
	s.f(s.data);
	return 0;
}

void os_start(void *(*f)(void *), void *data)
{
	struct start *s = HeapAlloc(GetProcessHeap(), 0, sizeof *s);

	*s = (struct start){f, data};
	CloseHandle(CreateThread(0, 0, begin, s, 0, 0));
}

int os_thread(void) { return GetCurrentThreadId(); }
int os_process(void) { return GetCurrentProcessId(); }
void os_yield(void) { SwitchToThread(); }
void os_sleep(int64_t us) { Sleep((us + 999) / 1000); }

void *os_memory(size_t size) { return VirtualAlloc(0, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
void *os_reserve(size_t size) { return VirtualAlloc(0, size, MEM_RESERVE, PAGE_READWRITE); }
void os_commit(void *at, size_t size) { VirtualAlloc(at, size, MEM_COMMIT, PAGE_READWRITE); }
void os_forget(void *at, size_t size) { VirtualAlloc(at, size, MEM_RESET, PAGE_READWRITE); }

/*
 * Views cannot be mapped into reserved addresses, so these stay free: the middle of the largest
 * free region, which the program's own memory, as Go's heap at its random address, does not grow into.
 */
void *os_span(size_t size)
{
	MEMORY_BASIC_INFORMATION m;
	uintptr_t best = 0, most = 0;

	for (uintptr_t at = 0; VirtualQuery((void *)at, &m, sizeof m); at = (uintptr_t)m.BaseAddress + m.RegionSize)
		if (m.State == MEM_FREE && m.RegionSize > most) {
			best = (uintptr_t)m.BaseAddress;
			most = m.RegionSize;
		}
	return most / 4 < size ? 0 : (void *)((best + most / 2) / (1 << 30) * (1 << 30));
}

intptr_t os_shared(size_t size)
{
	HANDLE memory = CreateFileMappingW(INVALID_HANDLE_VALUE, 0, PAGE_READWRITE, size >> 32, (DWORD)size, 0);

	return memory ? (intptr_t)memory : -1;
}

void os_unshare(intptr_t memory) { CloseHandle((HANDLE)memory); }

bool os_map(void *at, size_t size, intptr_t memory)
{
	return MapViewOfFileEx((HANDLE)memory, FILE_MAP_ALL_ACCESS, 0, 0, size, at) != 0;
}

void os_unmap(void *at, size_t size)
{
	(void)size;
	UnmapViewOfFile(at);
}

int64_t os_file_size(int file) { return (void)file, -1; }
void *os_file_map(int file, size_t offset, size_t size) { return (void)file, (void)offset, (void)size, (void *)0; }
void os_file_unmap(void *at, size_t size) { (void)at, (void)size; }
int os_file_new(const void *bytes, size_t n) { return (void)bytes, (void)n, -1; }
bool os_file_read(int file, void *bytes, size_t n) { return (void)file, (void)bytes, (void)n, false; }
int os_file_copy(int file) { return (void)file, -1; }
void os_file_close(int file) { (void)file; }

void *os_library(const char *name, char *why, size_t room)
{
	char file[MAX_PATH], *end;
	HMODULE self;
	void *library;

	*why = 0;
	if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, (void *)os_library, &self) ||
		!GetModuleFileNameA(self, file, sizeof file) || !(end = strrchr(file, '\\')))
		return 0;
	snprintf(end + 1, sizeof file - (end + 1 - file), "%s", name);
	library = (void *)LoadLibraryA(file);
	if (!library && GetFileAttributesA(file) != INVALID_FILE_ATTRIBUTES)
		snprintf(why, room, "%s: error %lu", file, GetLastError());
	return library;
}

void *os_symbol(void *library, const char *name) { return (void *)GetProcAddress((HMODULE)library, name); }

bool os_read_only(uintptr_t from, size_t size)
{
	MEMORY_BASIC_INFORMATION m;

	return VirtualQuery((void *)from, &m, sizeof m) && size && m.Protect & (PAGE_READONLY | PAGE_EXECUTE_READ);
}

bool os_private_file(uintptr_t from, size_t size)
{
	(void)from;
	(void)size;
	return false;
}
#endif
