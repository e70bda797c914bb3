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

struct source {
	const char *name, *text;
	struct kernel *kernels;
	int n;
	bool device; /* there is something else for the device */
	FILE *log;
	int errors;
};

/* source_read finds the kernels, and writes errors to the log. */
void source_read(struct source *s);
void source_error(struct source *s, int line, const char *format, ...) FORMAT(3);
/* source_instance adds a template with the arguments of an expression, or finds a kernel. It returns its index, or -1. */
int source_instance(struct source *s, const char *expression);

/* -- names and sizes: type.c -- */

/* type_size is the size of a parameter, 0 where that is not known. */
size_t type_size(const struct kernel *k, const char *parameter);
/* type_lowered returns a kernel's name as compilers make it, without its parameters. */
char *type_lowered(const struct kernel *k);

/* -- images: image.c -- */

char *image_ptx(const struct source *s, int arch);
char *image_cubin(const struct source *s, int arch, size_t *size);
