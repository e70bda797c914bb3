/* What headers need of stdalign.h, for parsing alone. */
#pragma once
#define alignas _Alignas
#define alignof _Alignof
