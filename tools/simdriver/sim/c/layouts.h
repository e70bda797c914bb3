/* The layouts of CUDA's structs that the simulated functions look into. */
#pragma once

struct z_CUgraphEdgeData {
	unsigned char from_port, to_port, type, reserved[5];
};

struct z_CUlaunchConfig {
	unsigned grid[3], block[3], shared;
	CUstream stream;
	struct { unsigned id, unused; union { int on; unsigned dim[3]; char all[64]; } value; } *attributes;
	unsigned n;
};

struct z_CUDA_KERNEL_NODE_PARAMS_v1 {
	CUfunction func;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
};

struct z_CUDA_KERNEL_NODE_PARAMS {
	CUfunction func;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	CUkernel kern;
	CUcontext ctx;
};

/* The older form has no more than the first members. */
struct end {
	size_t x, y, z, lod;
	unsigned type;
	CUdeviceptr host, device;
	void *array, *reserved;
	size_t pitch, height;
};

struct z_CUDA_MEMCPY3D {
	struct end src, dst;
	size_t width, height, depth;
};

struct z_CUDA_MEMSET_NODE_PARAMS {
	CUdeviceptr dst;
	size_t pitch;
	unsigned value, element;
	size_t width, height;
};

struct z_CUDA_HOST_NODE_PARAMS {
	void (*fn)(void *);
	void *data;
};

struct z_CUDA_MEM_ALLOC_NODE_PARAMS {
	struct {
		unsigned type, handles, place;
		int device;
		void *security;
		size_t max;
		unsigned short usage;
		unsigned char rest[54];
	} pool;
	const void *access; /* of 12 bytes each */
	size_t naccess, size;
	CUdeviceptr address;
};

struct z_CUDA_BATCH_MEM_OP_NODE_PARAMS {
	CUcontext ctx;
	unsigned n;
	CUstreamBatchMemOpParams *ops;
	unsigned flags;
};

struct z_CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
	CUexternalSemaphore *list;
	const struct semaphore_params *params;
	unsigned n;
};

struct z_CUDA_EXT_SEM_WAIT_NODE_PARAMS {
	CUexternalSemaphore *list;
	const struct semaphore_params *params;
	unsigned n;
};

union z_CUkernelNodeAttrValue {
	char pad[64];
	unsigned value, dim[3];
	int priority;
};

struct z_CUgraphNodeParams {
	int type, reserved0[3];
	union {
		long long all[29];
		struct z_CUDA_KERNEL_NODE_PARAMS kernel;
		struct { int flags, reserved; CUcontext ctx; struct z_CUDA_MEMCPY3D copy; } copy;
		struct { struct z_CUDA_MEMSET_NODE_PARAMS set; CUcontext ctx; } set;
		struct { struct z_CUDA_HOST_NODE_PARAMS host; unsigned mode; CUcontext ctx; } host;
		struct { CUgraph graph; int ownership; } child;
		struct { CUevent event; CUcontext ctx; } event; /* only a record has a context */
		struct z_CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signals;
		struct z_CUDA_EXT_SEM_WAIT_NODE_PARAMS awaits;
		struct z_CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		CUdeviceptr freed;
		struct z_CUDA_BATCH_MEM_OP_NODE_PARAMS ops;
		struct { CUgraphConditionalHandle handle; unsigned choice, n; CUgraph *graphs; CUcontext ctx; } condition;
	};
	long long reserved2;
};

struct z_CUDA_GRAPH_INSTANTIATE_PARAMS {
	unsigned long long flags;
	CUstream upload;
	CUgraphNode node;
	unsigned result;
};

struct z_CUgraphExecUpdateResultInfo {
	unsigned result;
	CUgraphNode node, from;
};

union z_CUstreamAttrValue {
	char pad[64];
	struct { CUdeviceptr base; size_t size; float ratio; unsigned hit, miss; } window;
	unsigned policy, domain;
	int priority;
	struct { unsigned char normal, remote; } domains;
};

union z_CUstreamBatchMemOpParams {
	unsigned operation;
	struct { unsigned operation; CUdeviceptr address; uint64_t value; unsigned flags; CUdeviceptr alias; } value;
	unsigned long long pad[6];
};

struct z_CUdevResource {
	unsigned type;
	union {
		unsigned char own[92]; /* the driver's: here what follows */
		struct { unsigned known, device, split, mask[8]; } inner;
	};
	union {
		unsigned char all[40];
		struct { unsigned count, least, alignment, flags, domain; } sm;
	};
	struct z_CUdevResource *next;
};

struct z_CU_DEV_SM_RESOURCE_GROUP_PARAMS {
	unsigned count, together, preferred, flags, domain, reserved[11];
};

struct z_CUmemAllocationProp {
	int type;
	unsigned handles;
	CUmemLocation location;
	void *win32;
	struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
};

struct z_CUmemPoolProps {
	unsigned type, shareable;
	CUmemLocation location;
	void *security;
	size_t max;
	unsigned short usage;
	unsigned char rdma, reserved[53];
};

struct z_CUmemAccessDesc {
	CUmemLocation location;
	unsigned flags;
};

struct z_CUmemPoolPtrExportData {
	unsigned char reserved[64];
};

struct z_CUDA_MEMCPY3D_PEER { /* with contexts in the reserved words */
	struct end src, dst;
	size_t width, height, depth;
};

struct z_CUmemcpyAttributes {
	unsigned order;
	CUmemLocation src, dst;
	unsigned flags;
};

struct z_CUDA_ARRAY3D_DESCRIPTOR {
	size_t width, height, depth;
	unsigned format, channels, flags;
};

struct z_CUDA_RESOURCE_DESC {
	unsigned type;
	union {
		CUarray array;
		struct { CUdeviceptr at; unsigned format, channels; size_t size; } linear;
		struct { CUdeviceptr at; unsigned format, channels; size_t width, height, pitch; } pitched;
		int all[32];
	};
	unsigned flags;
};

struct z_CUDA_TEXTURE_DESC {
	unsigned address[3], filter, flags, anisotropy, mipmap;
	float bias, least, most, border[4];
	int reserved[12];
};

struct z_CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
	unsigned type;
	union { int fd; void *all[2]; };
	unsigned long long size;
	unsigned flags, reserved[16];
};

struct z_CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
	unsigned long long offset, size;
	unsigned flags, reserved[16];
};

struct z_CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
	unsigned type;
	union { int fd; void *all[2]; };
	unsigned flags, reserved[16];
};

/* What a signal and a wait are told is alike, as far as it is simulated. */
struct semaphore_params {
	uint64_t value, rest[8];
	unsigned flags, reserved[16];
};
struct z_CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS { struct semaphore_params params; };
struct z_CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS { struct semaphore_params params; };

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SIZE(CUgraphEdgeData, 8);
SIZE(CUlaunchConfig, 56);
SIZE(CUDA_KERNEL_NODE_PARAMS, 72);
SIZE(CUDA_KERNEL_NODE_PARAMS_v1, 56);
SIZE(CUDA_MEMCPY3D, 200);
SIZE(CUDA_MEMSET_NODE_PARAMS, 40);
SIZE(CUDA_HOST_NODE_PARAMS, 16);
SIZE(CUDA_MEM_ALLOC_NODE_PARAMS, 120);
SIZE(CUDA_BATCH_MEM_OP_NODE_PARAMS, 32);
SIZE(CUkernelNodeAttrValue, 64);
SIZE(CUgraphNodeParams, 256);
SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS, 32);
SIZE(CUgraphExecUpdateResultInfo, 24);
SIZE(CUstreamAttrValue, 64);
SIZE(CUstreamBatchMemOpParams, 48);
SIZE(CUdevResource, 144);
SIZE(CU_DEV_SM_RESOURCE_GROUP_PARAMS, 64);
SIZE(CUmemAllocationProp, 32);
SIZE(CUmemPoolProps, 88);
SIZE(CUmemAccessDesc, 12);
SIZE(CUmemPoolPtrExportData, 64);
SIZE(CUDA_MEMCPY3D_PEER, 200);
SIZE(CUmemcpyAttributes, 24);
SIZE(CUDA_ARRAY3D_DESCRIPTOR, 40);
SIZE(CUDA_RESOURCE_DESC, 144);
SIZE(CUDA_TEXTURE_DESC, 104);
SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104);
SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, 88);
SIZE(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, 96);
SIZE(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, 144);
SIZE(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, 144);
SIZE(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, 24);
SIZE(CUDA_EXT_SEM_WAIT_NODE_PARAMS, 24);
#undef SIZE
