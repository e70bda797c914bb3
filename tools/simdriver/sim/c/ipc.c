#include "sim.h"

/*
 * Other processes are not simulated, and the one that has allocated memory may
 * not open its handle. A handle of any other process is opened as memory of that
 * size, with nothing in it.
 */
struct sent {
	uint64_t process;
	CUdeviceptr address;
	size_t size;
};

enum { ENABLE_PEERS = 1 };

CUresult cuIpcGetMemHandle(CUipcMemHandle *ipc, CUdeviceptr address)
{
	ENTER(CURRENT);
	struct block *b = block_at(address);
	struct sent sent;

	if (!ipc || !b || b->freed || b->place != DEVICE_MEMORY)
		return INVALID_VALUE;
	sent = (struct sent){os_process(), b->address, b->size};
	memset(ipc, 0, sizeof *ipc);
	memcpy(ipc, &sent, sizeof sent);
	return OK;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle ipc, unsigned flags)
{
	ENTER(CURRENT);
	struct sent sent;
	struct block *b;

	memcpy(&sent, &ipc, sizeof sent);
	if (!address || flags != ENABLE_PEERS)
		return INVALID_VALUE;
	if (sent.process == (uint64_t)os_process())
		return INVALID_CONTEXT;
	if (!sent.process || !sent.size)
		return INVALID_HANDLE;
	if (!(b = block_new(IPC_MEMORY, current()->device, current(), sent.size)))
		return OUT_OF_MEMORY;
	*address = b->address;
	return OK;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	ENTER(DEAD);
	struct block *b = block_at(address);
	CUresult r;

	if (!b || b->freed || b->place != IPC_MEMORY || b->address != address)
		return INVALID_VALUE;
	if (!sim.dead && (r = owner(b->context)))
		return r;
	context_wait(b->context);
	block_free(b);
	return sim.dead;
}
