// Package collective exchanges data between GPUs by NCCL: sums over all of them, copies,
// messages. The GPUs may belong to one process, to several, and to several machines.
package collective
