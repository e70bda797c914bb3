package collective

import (
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Element is a type of numbers that NCCL reduces. The two formats of 8 bits need compute
// capability 9.0. Operations that only move values take any type that a safe.Buffer has.
type Element interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64 | float32 | float64 |
		dtype.Float16 | dtype.BFloat16 | dtype.Float8E4M3 | dtype.Float8E5M2
}

// anyBytes is the type of values that are moved only.
const anyBytes = nccl.NcclUint8

// elementOf returns NCCL's number for a type.
func elementOf[T Element]() nccl.NcclDataType_t {
	switch any(T(0)).(type) {
	case int8:
		return nccl.NcclInt8
	case uint8:
		return nccl.NcclUint8
	case int32:
		return nccl.NcclInt32
	case uint32:
		return nccl.NcclUint32
	case int64:
		return nccl.NcclInt64
	case uint64:
		return nccl.NcclUint64
	case float32:
		return nccl.NcclFloat32
	case dtype.Float16:
		return nccl.NcclFloat16
	case dtype.BFloat16:
		return nccl.NcclBfloat16
	case dtype.Float8E4M3:
		return nccl.NcclFloat8e4m3
	case dtype.Float8E5M2:
		return nccl.NcclFloat8e5m2
	}
	return nccl.NcclFloat64
}
