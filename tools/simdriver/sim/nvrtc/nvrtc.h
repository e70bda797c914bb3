/*
 * A double of NVRTC for the simulated driver. It compiles nothing: it looks for
 * the kernels that a source declares, and makes images that name them.
 */
#pragma once

#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ztypes.h"
#include "zprotos.h"

#include "functions.h"
#define DECLARE(name) __typeof__(*(fn_##name)0) name;
FUNCTIONS(DECLARE)
#undef DECLARE

#define MOST 64 /* parameters of a kernel or a template */

#ifdef _WIN32
#define FORMAT(n) __attribute__((format(gnu_printf, n, n + 1)))
#else
#define FORMAT(n) __attribute__((format(printf, n, n + 1)))
#endif

/* -- text of any length: text.c -- */

FILE *text_open(void);
/* text_close returns what was written. */
char *text_close(FILE *file);

/* -- what a source declares: source.c -- */

struct kernel {
	char *name;               /* with namespaces */
	char *arguments[MOST];    /* of the template, once it has some */
	char *variables[MOST];    /* that the template calls them */
	char *parameters[MOST];   /* as they are written */
	int narguments, nvariables, nparameters;
	bool c, template;
};

struct variable {
	char *name;   /* with namespaces */
	size_t size;  /* 0 where that, or the first value, is not known */
	char *bytes;  /* at first, 0 for zeros */
	bool c, array, constant, managed;
	bool hidden;  /* NVRTC makes up a symbol */
	bool outside; /* it may be another source's */
};

/* A constant is a number with a name, as arrays have for their lengths. */
struct constant { char *name, *text; };

struct source {
	const char *name, *text;
	struct kernel *kernels;
	int n;
	struct variable *variables;
	int nvariables;
	struct constant *constants;
	int nconstants;
	bool device; /* there is something else for the device */
	bool relocatable;
	FILE *log;
	int errors;
};

/* source_read finds the kernels, and writes errors to the log. */
void source_read(struct source *s);
void source_error(struct source *s, int line, const char *format, ...) FORMAT(3);
/* source_instance adds a template with the arguments of an expression, or finds a kernel. It returns its index, or -1. */
int source_instance(struct source *s, const char *expression);

/* -- variables: variable.c -- */

/* A declaration outside of functions: its words, one a line, up to the semicolon. */
struct declaration { const char *text, *space; bool c, unnamed; int line; };
/* variable_opens tells whether the next brace is of a value, not of a body. */
bool variable_opens(const char *text);
/* variable_read adds the variables and constants of a declaration. */
void variable_read(struct source *s, const struct declaration *d);
/* variable_find returns the variable that an expression is the address of, or 0. */
const struct variable *variable_find(const struct source *s, const char *expression);
/* variable_constants is how many bytes of constant memory there are. */
size_t variable_constants(const struct source *s);

/* -- numbers: number.c -- */

/* constant_add adds a constant, of which the value may be any text. One with several values has none. */
void constant_add(struct source *s, const char *name, const char *text);
/* number_whole computes an expression of whole numbers and constants. */
bool number_whole(const struct source *s, const char *text, int64_t *to);
/* number_store writes the value of an expression as a value of a type: see type_letter. */
bool number_store(const struct source *s, const char *text, char letter, size_t size, char *to);

/* -- names and sizes: type.c -- */

/* type_size is the size of a parameter, 0 where that is not known. */
size_t type_size(const struct kernel *k, const char *parameter);
/* type_align is the alignment of a known type of that size: one of three values has that of a value. */
size_t type_align(size_t size);
/* type_vector returns how many values one of CUDA's vector types has, such as float4, and the letter of their type. It is 0 for others. */
int type_vector(const char *name, char *letter);
/* type_lowered returns a kernel's name as compilers make it, without its parameters. */
char *type_lowered(const struct kernel *k);
/* type_symbol returns a variable's. */
char *type_symbol(const struct variable *v);
/* type_letter is what compilers write for the type of a parameter or a variable: 'f' for float. It is 0 for others. */
char type_letter(const char *declared);

/* -- images: image.c -- */

char *image_ptx(const struct source *s, int arch);
char *image_cubin(const struct source *s, int arch, size_t *size);
