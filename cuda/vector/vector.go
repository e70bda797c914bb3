// Package vector has CUDA's built-in vector types, such as float4 and dim3, for values, fields and buffers that kernels
// share with Go.
//
// Each type has the size and the fields of its counterpart in CUDA C++, but not always its alignment. CUDA C++ aligns a
// float4 or a double2 to 16 bytes, because the GPU loads it at once; Go aligns it as its fields, to 4 or 8. So a Go struct with
// such a field needs explicit padding where the struct in CUDA C++ has some, including at its end:
//
//	type particle struct { // struct { int kind; float4 at; int color; }, of 48 bytes
//		Kind  int32
//		_     [12]byte
//		At    vector.Float4
//		Color int32
//		_     [12]byte
//	}
//
// The command tools/kernels writes such structs. Memory that CUDA allocates is aligned for all vectors. There are no types
// for long1 to ulong4, whose size differs on Windows.
package vector

// Char1 is char1.
type Char1 struct{ X int8 }

// Char2 is char2.
type Char2 struct{ X, Y int8 }

// Char3 is char3.
type Char3 struct{ X, Y, Z int8 }

// Char4 is char4.
type Char4 struct{ X, Y, Z, W int8 }

// UChar1 is uchar1.
type UChar1 struct{ X uint8 }

// UChar2 is uchar2.
type UChar2 struct{ X, Y uint8 }

// UChar3 is uchar3.
type UChar3 struct{ X, Y, Z uint8 }

// UChar4 is uchar4.
type UChar4 struct{ X, Y, Z, W uint8 }

// Short1 is short1.
type Short1 struct{ X int16 }

// Short2 is short2.
type Short2 struct{ X, Y int16 }

// Short3 is short3.
type Short3 struct{ X, Y, Z int16 }

// Short4 is short4.
type Short4 struct{ X, Y, Z, W int16 }

// UShort1 is ushort1.
type UShort1 struct{ X uint16 }

// UShort2 is ushort2.
type UShort2 struct{ X, Y uint16 }

// UShort3 is ushort3.
type UShort3 struct{ X, Y, Z uint16 }

// UShort4 is ushort4.
type UShort4 struct{ X, Y, Z, W uint16 }

// Int1 is int1.
type Int1 struct{ X int32 }

// Int2 is int2.
type Int2 struct{ X, Y int32 }

// Int3 is int3.
type Int3 struct{ X, Y, Z int32 }

// Int4 is int4.
type Int4 struct{ X, Y, Z, W int32 }

// UInt1 is uint1.
type UInt1 struct{ X uint32 }

// UInt2 is uint2.
type UInt2 struct{ X, Y uint32 }

// UInt3 is uint3.
type UInt3 struct{ X, Y, Z uint32 }

// UInt4 is uint4.
type UInt4 struct{ X, Y, Z, W uint32 }

// LongLong1 is longlong1.
type LongLong1 struct{ X int64 }

// LongLong2 is longlong2.
type LongLong2 struct{ X, Y int64 }

// LongLong3 is longlong3.
type LongLong3 struct{ X, Y, Z int64 }

// LongLong4 is longlong4.
type LongLong4 struct{ X, Y, Z, W int64 }

// ULongLong1 is ulonglong1.
type ULongLong1 struct{ X uint64 }

// ULongLong2 is ulonglong2.
type ULongLong2 struct{ X, Y uint64 }

// ULongLong3 is ulonglong3.
type ULongLong3 struct{ X, Y, Z uint64 }

// ULongLong4 is ulonglong4.
type ULongLong4 struct{ X, Y, Z, W uint64 }

// Float1 is float1.
type Float1 struct{ X float32 }

// Float2 is float2.
type Float2 struct{ X, Y float32 }

// Float3 is float3.
type Float3 struct{ X, Y, Z float32 }

// Float4 is float4.
type Float4 struct{ X, Y, Z, W float32 }

// Double1 is double1.
type Double1 struct{ X float64 }

// Double2 is double2.
type Double2 struct{ X, Y float64 }

// Double3 is double3.
type Double3 struct{ X, Y, Z float64 }

// Double4 is double4.
type Double4 struct{ X, Y, Z, W float64 }

// Dim3 is dim3. Unlike C's, its zero value is 0 in all dimensions.
type Dim3 struct{ X, Y, Z uint32 }
