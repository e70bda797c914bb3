/* The types of cuComplex.h, for parsing alone. */
#pragma once
typedef float _Complex cuFloatComplex;
typedef double _Complex cuDoubleComplex;
typedef cuFloatComplex cuComplex;
