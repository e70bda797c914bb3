/* What headers need of stdio.h, for parsing alone: as on Linux. */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>
typedef struct _IO_FILE FILE;
#define EOF (-1)
#define BUFSIZ 8192
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2
#define FILENAME_MAX 4096
extern FILE *stdin, *stdout, *stderr;
#define stdin stdin
#define stdout stdout
#define stderr stderr
FILE *fopen(const char *path, const char *mode);
int fclose(FILE *f);
int fflush(FILE *f);
size_t fread(void *p, size_t size, size_t n, FILE *f);
size_t fwrite(const void *p, size_t size, size_t n, FILE *f);
int fseek(FILE *f, long offset, int from);
long ftell(FILE *f);
int feof(FILE *f);
int ferror(FILE *f);
int fputs(const char *s, FILE *f);
int fputc(int c, FILE *f);
int fgetc(FILE *f);
char *fgets(char *s, int n, FILE *f);
int puts(const char *s);
int printf(const char *format, ...);
int fprintf(FILE *f, const char *format, ...);
int sprintf(char *s, const char *format, ...);
int snprintf(char *s, size_t n, const char *format, ...);
int vfprintf(FILE *f, const char *format, va_list list);
int vsnprintf(char *s, size_t n, const char *format, va_list list);
