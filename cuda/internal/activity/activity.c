//go:build cgo && linux && (amd64 || arm64)

#include <stddef.h>
#include <stdint.h>

/* The same as shared in activity.go. */
struct shared {
	uint8_t *base;
	uint64_t size, free, filled, starved, unused[3], valid[64];
};

static struct shared *s;

void cudabind_activity_publish(uintptr_t p) { s = (struct shared *)p; }

static void requested(uint8_t **buffer, size_t *size, size_t *records)
{
	uint64_t free = __atomic_load_n(&s->free, __ATOMIC_ACQUIRE);
	int i;

	*records = 0;
	do {
		if (!free) {
			__atomic_add_fetch(&s->starved, 1, __ATOMIC_RELAXED);
			*buffer = NULL;
			*size = 0;
			return;
		}
		i = __builtin_ctzll(free);
	} while (!__atomic_compare_exchange_n(&s->free, &free, free & (free - 1), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	*buffer = s->base + i * s->size;
	*size = s->size;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	size_t i = ((uintptr_t)buffer - (uintptr_t)s->base) / s->size;

	(void)context, (void)stream, (void)size;
	if (i >= sizeof s->valid / sizeof *s->valid)
		return; /* a buffer of other code that used CUPTI before */
	s->valid[i] = valid;
	__atomic_or_fetch(&s->filled, 1ull << i, __ATOMIC_RELEASE);
}

static void ignored(void *data, int domain, uint32_t id, const void *info)
{
	(void)data, (void)domain, (void)id, (void)info;
}

uintptr_t cudabind_activity_function(int i)
{
	return i == 0 ? (uintptr_t)requested : i == 1 ? (uintptr_t)completed : (uintptr_t)ignored;
}

/* For tests: one of the functions, with any number of arguments. */
void cudabind_activity_call(uintptr_t f, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
{
	((void (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))f)(a, b, c, d, e);
}
