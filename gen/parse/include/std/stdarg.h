/* What headers need of stdarg.h, for parsing alone: Go cannot make a va_list, and a function that takes one is left out. */
#pragma once
typedef __builtin_va_list __gnuc_va_list;
typedef __gnuc_va_list va_list;
