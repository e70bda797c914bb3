/* What tests tell the double of NCCL, and what it tells them: int32s in a file that both map. Its path is in
 * NCCL_DOUBLE. The Go type control in double_test.go has the same fields. */
#include <stdint.h>

struct control {
	int32_t busy;        /* milliseconds that a call takes, unless it is aborted */
	int32_t async;       /* the code that communicators return when asked for their state */
	int32_t fail;        /* the code that the next operation returns */
	int32_t hang;        /* operations wait until they are aborted */
	int32_t absent;      /* creation does not wait for ranks of other processes */
	int32_t hangs_init;  /* creation does not end */
	int32_t hangs_final; /* finalization does not end */
	int32_t hangs_destroy; /* destruction does not end, as if a process of another rank were stopped */
	int32_t live;        /* communicators */
	int32_t destroyed, aborted, finalized;
	int32_t overlapped; /* calls that met another call on the same communicator */
	int32_t polled;     /* communicators made without blocking = 1 */
	int32_t element;    /* the type of the latest operation */
	int32_t operations; /* so far */
	int32_t groups;     /* outermost ones so far */
	int32_t multicast;  /* of NCCL_NVLS_ENABLE: -1 if it is not set */
	int32_t skips;      /* registrations are not made, without an error */
	int32_t registered, deregistered; /* so far */
	int32_t cleaned;    /* registrations that the end of a communicator ended */
	int32_t stale;      /* deregistrations of nothing, or after the communicator was finalized */
	int32_t used;       /* registrations that were ended before operations on their memory */
	int32_t identified; /* calls of ncclGetUniqueId, so far */
	int32_t freed;      /* registrations that were ended after their memory was freed */
	int32_t waiting;    /* calls that wait for other ranks now */
	int32_t nothing;    /* operations do nothing */
	int32_t strict;     /* releases of communicators in another capture mode than RELAXED, which end captures */
};
