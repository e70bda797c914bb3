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

struct z_CUDA_KERNEL_NODE_PARAMS {
	CUfunction func;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	CUkernel kern;
	CUcontext ctx;
};

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

struct z_CUgraphNodeParams {
	int type, reserved0[3];
	union {
		long long all[29];
		struct z_CUDA_KERNEL_NODE_PARAMS kernel;
		struct { int flags, reserved; CUcontext ctx; struct z_CUDA_MEMCPY3D copy; } copy;
		struct { struct z_CUDA_MEMSET_NODE_PARAMS set; CUcontext ctx; } set;
		struct { struct z_CUDA_HOST_NODE_PARAMS host; unsigned mode; } host;
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

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SIZE(CUgraphEdgeData, 8);
SIZE(CUlaunchConfig, 56);
SIZE(CUDA_KERNEL_NODE_PARAMS, 72);
SIZE(CUDA_MEMCPY3D, 200);
SIZE(CUDA_MEMSET_NODE_PARAMS, 40);
SIZE(CUDA_HOST_NODE_PARAMS, 16);
SIZE(CUgraphNodeParams, 256);
SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS, 32);
SIZE(CUgraphExecUpdateResultInfo, 24);
SIZE(CUstreamAttrValue, 64);
SIZE(CUstreamBatchMemOpParams, 48);
#undef SIZE
