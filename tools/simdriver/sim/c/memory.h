/* Memory of all kinds: blocks, virtual memory, pools, and what textures read. */
#pragma once

/* -- memory: memory.c -- */

enum place { DEVICE_MEMORY, ASYNC_MEMORY, GLOBAL_MEMORY, HOST_MEMORY, MANAGED_MEMORY, GRAPH_MEMORY, IPC_MEMORY, ARRAY_MEMORY, PLACES };

/* What was said about a page of managed memory. A location is 0 for none. */
struct advice { bool read_mostly; CUmemLocation preferred, prefetched; unsigned accessed; /* bits: the host, devices */ };

struct pool;
struct block {
	CUdeviceptr address;
	size_t size;
	enum place place;
	int device;
	unsigned flags;
	struct context *context;
	struct pool *pool;    /* of stream-ordered memory */
	unsigned long long id;
	int imports;          /* by other processes, which free them first */
	bool managed;         /* a variable that is */
	bool synchronous;     /* synchronous operations wait */
	bool freed;           /* by the program */
	bool absent, gone;    /* in the order of the stream: not yet allocated, freed */
	/* of a graph */
	int refs;             /* of work that allocates or frees it */
	unsigned access;      /* bits of the devices that may use what a node by hand allocates */
	bool given;           /* to the program, by a launch */
	bool counted;         /* as what graphs use */
	int enders;           /* nodes of graphs that free it */
	bool ended;           /* by one of the graph that allocates it */
	struct advice *pages; /* of managed memory, once there is some */
	struct block *next;   /* of the live ones */
	struct block *before;
};

struct block *block_new(enum place place, int device, struct context *c, size_t size);
void block_free(struct block *b);
/* block_drop takes a reference of some work back. Without any, memory of a graph is freed, or the program's for good. */
void block_drop(struct block *b);
/* block_present tells that memory is allocated now or not, in the order of its stream; graphmem.c. */
void block_present(struct block *b, bool there);
void block_uncount(struct block *b);
/* block_at finds the block that an address lies in, alive or not. */
struct block *block_at(CUdeviceptr address);
/* reachable returns the memory, or 0 after a fault. */
void *reachable(CUdeviceptr address, size_t size, const char *who);
/* usable tells whether a copy of device memory may be enqueued. */
bool usable(CUdeviceptr address, size_t size, const char *who);
/* block_managed tells whether it is managed memory, which the host may use, too. */
bool block_managed(const struct block *b);
bool pinned(const void *host, size_t size);
/* registered finds the registered range that an address lies in. */
bool registered(CUdeviceptr address, CUdeviceptr *from, size_t *size);
void memory_end(struct context *c);
int blocks_alive(enum place place);
int registered_alive(void);
void registered_end(void);
void check_guards(void);

/* -- virtual memory: virtual.c -- */

/* virtual_known tells whether an address is, or was, one of a reserved range. */
bool virtual_known(CUdeviceptr address);
/* virtual_usable tells whether all of it is mapped, and a device may write to it; device -1 stands for any. */
bool virtual_usable(CUdeviceptr address, size_t size, int device);
/* virtual_part finds the mapping that an address lies in. */
bool virtual_part(CUdeviceptr address, CUdeviceptr *from, size_t *size);
int physical_alive(void);
int reserved_alive(void);
void virtual_end(void);

/* -- memory of other APIs: external.c -- */

/* external_usable tells whether an address is in a buffer of external memory that is there. */
bool external_usable(CUdeviceptr address, size_t size);
/* external_freed frees such a buffer, and tells whether there was one. */
bool external_freed(CUdeviceptr address);
int external_mappings(void);
/* externals_end ends what a context has imported, or any for 0. */
void externals_end(struct context *c);

/* -- memory pools: pool.c -- */

struct mark;

struct pool {
	CUmemoryPool handle, exporter; /* the latter of an imported pool */
	int device;
	unsigned location, type, shareable;
	unsigned access; /* bits of devices */
	int reuse[3];
	size_t max, threshold, reserved, reserved_high, used, used_high;
	struct { unsigned long long stream, last; } freed[8]; /* releases that the host has not waited for */
	int blocks;
	bool initial, imported, exported, destroyed;
};
enum { POOL_FILE = 1 }; /* how pools can be shared */
struct pool *pool_new(int device);
struct pool *pool_get(CUmemoryPool handle);
/* pool_current is the one that stream-ordered memory of a device comes from. */
struct pool *pool_current(int device);
bool pool_on_host(const struct pool *p);
bool pool_managed(const struct pool *p);
/* pool_block takes memory out of a pool, for a stream. */
struct block *pool_block(struct pool *p, struct stream *s, size_t size);
void pool_return(struct block *b);
/* pools_notice makes pools trim what was freed on a stream, or on any if s is 0. A query does not. */
void pools_notice(const struct stream *s);
/* pools_notice_event does the same for what was freed on the event's stream before its record. */
void pools_notice_event(const struct mark *m);
/* pools_releases is the number of releases so far. */
unsigned long long pools_releases(void);
/* pools_forget does the same for a stream that is gone. */
void pools_forget(const struct stream *s);
/* pool_freed notes a release on a stream, which the host has not waited for. */
void pool_freed(struct pool *p, const struct stream *s);
/* pool_filled tells whether the pool has ever had memory. */
bool pool_filled(CUmemoryPool handle);
/* pools_doomed tells whether the program destroyed a pool before it had waited for the releases. */
bool pools_doomed(void);
void pools_end(void);

/* -- arrays and textures: array.c, texture.c -- */

/* An array is memory, row by row. */
struct array {
	CUarray handle;
	struct array *next;
	struct context *context;
	struct block *block;
	size_t width, height, depth, element; /* element in bytes; 0 for no height or depth */
	unsigned format, channels, flags;
};
CUresult array_get(CUarray handle, struct array **a);
/* format_size is the size of a channel in bytes, 0 for a format that is not simulated. */
size_t format_size(unsigned format);
void arrays_end(struct context *c);

/* A texture, or a surface, is a view of rows of memory. */
struct texture {
	unsigned long long handle;
	struct texture *next;
	struct context *context;
	CUdeviceptr memory;
	size_t width, height, pitch; /* in elements, rows and bytes */
	unsigned format, channels;
	int address[2];
	bool linear, normalized;
	float border;
};
/* texture_read is the value of a texture of float numbers at coordinates. The texture may be gone, which is a fault. */
float texture_read(unsigned long long handle, float x, float y);
/* surface_write stores a float number. Outside of the surface it is a fault. */
void surface_write(unsigned long long handle, size_t x, size_t y, float value);
void textures_end(struct context *c);
