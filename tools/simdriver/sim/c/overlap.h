/*
 * Calls that run at once. The real driver crashes where one of them sees what
 * another changes; this one says which two they were, and stops the program.
 */
#pragma once

/* What a call does, as far as others that run at once have to do with it. */
enum does {
	ALONE,      /* nothing that matters */
	ALLOCATES,  /* memory, and nothing else */
	LOOKS,      /* at a stream, whose capture stays as it is */
	ASKS,       /* a stream, whose capture does not survive it */
	ASKS_EVENT, /* also one of the capture that recorded it */
	SWEEPS,     /* all captures of a context, or of a green one */
	WORKS,      /* puts work on a stream, or into its capture */
	RECORDS,
	WAITS,
	LAUNCHES,   /* an executable graph */
	BEGINS,     /* a capture */
	ENDS,
	READS,      /* a graph or an executable */
	INSTANTIATES,
	CLONES,     /* a graph */
	ALTERS,     /* a graph */
	DESTROYS,   /* a stream, an event, a graph or an executable */
	DROPS,      /* a memory pool */
	GRANTS,     /* access to memory of another device, or takes it */
	RESETS,     /* a context, with what lives in it */
};

/* What a flight has to do with, as it is when that is looked up. Nothing of it is followed later. */
struct sight {
	struct stream *stream;
	struct event *event;
	struct capture *capture, *recorded; /* of the stream, by the event */
	struct context *context;
	struct green *green;
	struct graph *graph, *outermost;
	struct exec *exec;
	struct graph *source; /* of the executable */
	unsigned family;      /* of the executable or the graph */
	enum does does;
	bool changes;  /* a capture */
	bool legacy;   /* it is about a legacy stream, */
	bool blocking; /* or about the capture of a blocking one */
	bool global;   /* captures in mode global are about all threads, */
	bool unsafe;   /* of which this is one, */
	bool kills;    /* and there are such captures */
	bool launched; /* the executable was */
	bool filled;   /* the pool was */
	bool pooled, waits; /* as in the flight */
	struct context *between[2]; /* it copies from one to the other */
};

/* A flight is a call between its beginning and its end. */
struct flight {
	const char *name;
	enum does does;
	/* What the program names. A stream of 0 is the legacy one. */
	CUstream stream;
	CUevent event;
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUgreenCtx green;
	CUmemoryPool pool;
	CUcontext context;
	CUdevice device;
	bool unsafe; /* captures in mode global forbid it */
	bool last;   /* it resets a device's context only if that is its last user */
	bool global; /* the capture that begins is in mode global */
	bool pooled; /* it is about memory of pools */
	bool waits;  /* for work that may have freed memory of pools */
	CUcontext between[2]; /* it copies from one to the other */
	/* the rest is overlap.c's */
	int thread, at; /* at is its place */
	unsigned mode;
	struct context *view;
	struct sight sight;
};

/* A call is announced before it takes the lock. */
void flight_begin(struct flight *f);
/* flight_check compares it with all others, flight_end does so again and forgets it. */
void flight_check(struct flight *f);
/* flight_harmless says that the rest of the call may overlap any other. */
void flight_harmless(void);
void flight_end(struct flight *f);
/* flight_rest is called by what begins to wait and sees no more captures: the flight of this thread matters no more. */
void flight_rest(void);
/* flight_name is the function that this thread is in, or 0. */
const char *flight_name(void);
