//go:build cgo && linux && (amd64 || arm64)

/* The part of NVTX 3 that ranges and names need, written from its description: a tool's library
   asks for the table of a module, and stores its functions there. Without a tool all are NULL. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CORE = 1, CUDA = 2, CORE2 = 5 };
enum { NAME_OS_THREAD = 14, CORE_SIZE = 16 };
enum { NAME_CU_STREAM = 5, CUDA_SIZE = 9 };
enum { DOMAIN_RANGE_PUSH = 4, DOMAIN_RANGE_POP = 5, DOMAIN_CREATE = 12, CORE2_SIZE = 16 };

typedef void (*function)(void);

static function core[CORE_SIZE], cuda[CUDA_SIZE], core2[CORE2_SIZE];
/* Each entry points to where the tool stores a function. */
static function *core_table[CORE_SIZE + 1], *cuda_table[CUDA_SIZE + 1], *core2_table[CORE2_SIZE + 1];
static void *domain;

static int module_table(int module, function ***table, unsigned *size)
{
	function **t;
	unsigned n;

	switch (module) {
	case CORE:  t = core_table; n = CORE_SIZE; break;
	case CUDA:  t = cuda_table; n = CUDA_SIZE; break;
	case CORE2: t = core2_table; n = CORE2_SIZE; break;
	default:    return 0;
	}
	if (size)
		*size = n;
	if (table)
		*table = t;
	return 1;
}

static void tool_version(uint32_t version) { (void)version; }

static const struct { size_t size; int (*table)(int, function ***, unsigned *); } callbacks = { sizeof callbacks, module_table };
static const struct { size_t size; uint32_t version, reserved; void (*tool)(uint32_t); } versions = { sizeof versions, 3, 0, tool_version };

static const void *export_table(uint32_t id)
{
	return id == 1 ? (const void *)&callbacks : id == 3 ? (const void *)&versions : NULL;
}

int cudabind_nvtx_attach(const char *path)
{
	int (*init)(const void *(*)(uint32_t));
	void *(*create)(const char *);
	void *lib;
	int i;

	for (i = 0; i < CORE_SIZE; i++)
		core_table[i] = &core[i];
	for (i = 0; i < CUDA_SIZE; i++)
		cuda_table[i] = &cuda[i];
	for (i = 0; i < CORE2_SIZE; i++)
		core2_table[i] = &core2[i];
	if (!(lib = dlopen(path, RTLD_LAZY)))
		return 0;
	*(void **)&init = dlsym(lib, "InitializeInjectionNvtx2");
	if (!init || !init(export_table)) {
		memset(core, 0, sizeof core);
		memset(cuda, 0, sizeof cuda);
		memset(core2, 0, sizeof core2);
		return 0;
	}
	create = (void *(*)(const char *))core2[DOMAIN_CREATE];
	if (create)
		domain = create("Go");
	return core2[DOMAIN_RANGE_PUSH] && core2[DOMAIN_RANGE_POP];
}

struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const char *message;
};

void cudabind_nvtx_push(const char *name)
{
	struct attributes a = { .version = 3, .size = sizeof a, .message_type = 1, .message = name };

	((int (*)(void *, const struct attributes *))core2[DOMAIN_RANGE_PUSH])(domain, &a);
}

void cudabind_nvtx_pop(void) { ((int (*)(void *))core2[DOMAIN_RANGE_POP])(domain); }

void cudabind_nvtx_name_stream(uintptr_t stream, const char *name)
{
	if (cuda[NAME_CU_STREAM])
		((void (*)(void *, const char *))cuda[NAME_CU_STREAM])((void *)stream, name);
}

void cudabind_nvtx_name_thread(uint32_t id, const char *name)
{
	if (core[NAME_OS_THREAD])
		((void (*)(uint32_t, const char *))core[NAME_OS_THREAD])(id, name);
}
