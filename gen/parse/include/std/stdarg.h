/* What headers need of stdarg.h, for parsing alone: Go cannot make a va_list, and a function that takes one is left out. */
#pragma once
typedef __builtin_va_list __gnuc_va_list;
typedef __gnuc_va_list va_list;
void __builtin_va_start(__builtin_va_list list, ...);
void __builtin_va_end(__builtin_va_list list);
void *__builtin_va_arg_impl(__builtin_va_list list);
#define va_start(list, last) __builtin_va_start(list, last)
#define va_arg(list, type) __builtin_va_arg(list, type)
#define va_copy(to, from) ((void)(*(to) = *(from)))
#define va_end(list) __builtin_va_end(list)
