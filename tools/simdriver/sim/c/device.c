#include "sim.h"

struct device devices[MAX_DEVICES];
static int ndevices;

struct z_CUuuid { unsigned char bytes[16]; };

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atol(text) : otherwise;
}

void simDevices(int n)
{
	pthread_mutex_lock(&sim.lock);
	if (!sim.initialized && n >= 0 && n <= MAX_DEVICES)
		ndevices = n ? n : -1;
	pthread_mutex_unlock(&sim.lock);
}

int device_count(void)
{
	if (!ndevices) {
		ndevices = setting("CUDABIND_SIM_DEVICES", 2);
		if (ndevices > MAX_DEVICES)
			ndevices = MAX_DEVICES;
	}
	return ndevices < 0 ? 0 : ndevices;
}

/* in bytes, of each device */
size_t device_memory(void)
{
	return (size_t)setting("CUDABIND_SIM_MEMORY_MIB", 1024) << 20;
}

struct device *device_get(CUdevice d)
{
	return d >= 0 && d < device_count() ? &devices[d] : 0;
}

CUresult cuInit(unsigned flags)
{
	ENTER(EARLY);
	if (flags)
		return INVALID_VALUE;
	if (!device_count())
		return NO_DEVICE;
	if (!sim.initialized)
		engine_start();
	sim.initialized = true;
	return OK;
}

CUresult cuDriverGetVersion(int *version)
{
	ENTER(BARE | EARLY | DEAD | CALLBACK);
	if (!version)
		return INVALID_VALUE;
	*version = SIM_VERSION;
	return OK;
}

/* Libraries of NVIDIA's ask for tables of the driver's own functions: NVRTC crashes where there is no such function, and goes on without a table. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	ENTER(BARE | EARLY | DEAD | CALLBACK);
	return table && id ? NOT_FOUND : INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *n)
{
	ENTER(DEAD);
	if (!n)
		return INVALID_VALUE;
	*n = device_count();
	return OK;
}

CUresult cuDeviceGet(CUdevice *d, int ordinal)
{
	ENTER(DEAD);
	if (!d)
		return INVALID_VALUE;
	if (!device_get(ordinal))
		return INVALID_DEVICE;
	*d = ordinal;
	return OK;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice d)
{
	ENTER(DEAD);
	if (!name || size <= 0)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	snprintf(name, size, "Simulated GPU %d", d);
	return OK;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d)
{
	ENTER(DEAD);
	if (!uuid)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	memcpy(uuid->bytes, "simulated GPU  ", 16);
	uuid->bytes[15] = d;
	return OK;
}

CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice d)
{
	ENTER(DEAD);
	if (!size)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	*size = device_memory();
	return OK;
}

/* Those that are not 0, as an H200 has them. */
static const struct { int attribute, value; } attributes[] = {
	{1, 1024}, /* threads a block */
	{2, 1024}, {3, 1024}, {4, 64}, /* block */
	{5, 2147483647}, {6, 65535}, {7, 65535}, /* grid */
	{8, 49152}, /* shared memory a block */
	{9, 65536}, /* constant memory */
	{10, 32}, /* warp */
	{11, 2147483647}, /* pitch */
	{12, 65536}, /* registers a block */
	{13, 1980000}, /* kHz */
	{14, 512}, /* texture alignment */
	{15, 1}, {16, 132}, /* multiprocessors */
	{19, 1}, /* host memory can be mapped */
	{31, 1}, /* concurrent kernels */
	{36, 3201000}, {37, 6144}, {38, 62914560}, /* memory's clock and bus, L2 */
	{39, 2048}, /* threads a multiprocessor */
	{40, 3}, /* async engines */
	{41, 1}, /* unified addressing */
	{51, 32}, /* texture pitch alignment */
	{75, 9}, {76, 0}, /* compute capability */
	{78, 1}, /* stream priorities */
	{81, 233472}, {82, 65536}, /* shared memory and registers of a multiprocessor */
	{83, 1}, /* managed memory */
	{89, 1}, {90, 1}, {91, 1}, /* concurrent managed access, preemption, registered host pointers */
	{95, 1}, /* cooperative launch */
	{97, 232448}, /* shared memory a block that asks for it */
	{99, 1}, /* host memory can be registered */
	{102, 1}, {103, FILES}, /* virtual memory, and files of it */
	{106, 32}, /* blocks a multiprocessor */
	{108, 39321600}, {109, 134213632}, /* persisting L2, access policy window */
	{111, 1024}, /* reserved shared memory a block */
	{115, 1}, {119, FILES}, /* memory pools, also shared by file descriptors */
	{120, 1}, /* clusters */
	{122, 1}, {123, 1}, /* 64-bit operations on memory, and waits for NOR */
	{125, 1}, /* interprocess events */
	{126, 4}, /* memory sync domains */
	{127, 1}, /* tensor maps */
	{134, -1}, /* no node of the host */
#if SIM_VERSION >= 13000
	{144, 1}, /* memory pools of the host */
#endif
};

static int capability_major, capability_minor; /* if a test has set them */

void device_capability(int major, int minor)
{
	capability_major = major;
	capability_minor = minor;
}

void simCapability(int major, int minor)
{
	pthread_mutex_lock(&sim.lock);
	device_capability(major, minor);
	pthread_mutex_unlock(&sim.lock);
}

int device_attribute(int attribute, int device)
{
	if (attribute == 33) /* PCI bus */
		return device + 1;
	if (capability_major && attribute == 75)
		return capability_major;
	if (capability_major && attribute == 76)
		return capability_minor;
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
		if (attributes[i].attribute == attribute)
			return attributes[i].value;
	return 0;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice d)
{
	ENTER(DEAD);
	if (!value || !attribute || attribute > 150)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	*value = device_attribute(attribute, d);
	return OK;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice d)
{
	ENTER(DEAD);
	if (!text || size < 13)
		return INVALID_VALUE;
	if (!device_get(d))
		return INVALID_DEVICE;
	snprintf(text, size, "0000:%02x:00.0", d + 1);
	return OK;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
	ENTER(DEAD);
	if (!can)
		return INVALID_VALUE;
	if (!device_get(d) || !device_get(peer))
		return INVALID_DEVICE;
	*can = d != peer;
	return OK;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice d, CUdevice peer)
{
	ENTER(DEAD);
	if (!value || !attribute || attribute > 5)
		return INVALID_VALUE;
	if (!device_get(d) || !device_get(peer) || d == peer)
		return INVALID_DEVICE;
	*value = attribute != 1; /* the first is a rank, best is 0 */
	return OK;
}
