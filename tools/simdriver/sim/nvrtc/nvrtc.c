#include "nvrtc.h"

enum { /* nvrtcResult */
	OK, OUT_OF_MEMORY, CREATION, INVALID_INPUT, INVALID_PROGRAM, INVALID_OPTION, COMPILATION, BUILTIN, NO_EXPRESSIONS_AFTER,
	NO_NAMES_BEFORE, NOT_VALID, INTERNAL, TIME_FILE, NO_PCH, PCH_HEAP, PCH, CANCELLED,
};

struct expression { char *text, *lowered; };

struct z_nvrtcProgram {
	char *name, *text, *log, *ptx, *cubin, *ltoir;
	size_t cubin_size;
	struct expression *expressions;
	int n;
	bool compiled; /* or tried */
	int (*flow)(void *, void *);
	void *payload;
};

#define TOLD(number, text) case number: return "NVRTC_" text;

const char *nvrtcGetErrorString(nvrtcResult code)
{
	switch (code) {
	TOLD(OK, "SUCCESS")
	TOLD(OUT_OF_MEMORY, "ERROR_OUT_OF_MEMORY")
	TOLD(CREATION, "ERROR_PROGRAM_CREATION_FAILURE")
	TOLD(INVALID_INPUT, "ERROR_INVALID_INPUT")
	TOLD(INVALID_PROGRAM, "ERROR_INVALID_PROGRAM")
	TOLD(INVALID_OPTION, "ERROR_INVALID_OPTION")
	TOLD(COMPILATION, "ERROR_COMPILATION")
	TOLD(NO_EXPRESSIONS_AFTER, "ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION")
	TOLD(NO_NAMES_BEFORE, "ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION")
	TOLD(NOT_VALID, "ERROR_NAME_EXPRESSION_NOT_VALID")
	TOLD(CANCELLED, "ERROR_CANCELLED")
	}
	return "NVRTC_ERROR unknown";
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
	if (!major || !minor)
		return INVALID_INPUT;
	*major = SIM_VERSION / 1000;
	*minor = SIM_VERSION % 1000 / 10;
	return OK;
}

static const int archs[] = {
	35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121,
};

/* known tells whether the version that this stands for compiles for an architecture. */
static bool known(int arch)
{
	if (arch < 50)
		return SIM_VERSION < 12000;
	if (arch < 75)
		return SIM_VERSION < 13000;
	if (arch == 101)
		return SIM_VERSION >= 12080 && SIM_VERSION < 13000;
	if (arch == 110)
		return SIM_VERSION >= 13000;
	if (arch == 103 || arch == 121)
		return SIM_VERSION >= 12090;
	return arch <= 90 || SIM_VERSION >= 12080;
}

static int supported(int *to)
{
	int n = 0;

	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
		if (known(archs[i])) {
			if (to)
				to[n] = archs[i];
			n++;
		}
	return n;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *n)
{
	if (!n)
		return INVALID_INPUT;
	*n = supported(0);
	return OK;
}

nvrtcResult nvrtcGetSupportedArchs(int *to)
{
	if (!to)
		return INVALID_INPUT;
	supported(to);
	return OK;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *to, const char *text, const char *name, int n, const char *const *headers, const char *const *names)
{
	nvrtcProgram p;

	if (!to || !text || n < 0 || (n && (!headers || !names)))
		return INVALID_INPUT;
	p = calloc(1, sizeof *p);
	p->text = strdup(text);
	p->name = strdup(name && *name ? name : "default_program");
	p->log = strdup("");
	*to = p;
	return OK;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *at)
{
	nvrtcProgram p = at ? *at : 0;

	if (!p)
		return INVALID_PROGRAM;
	for (int i = 0; i < p->n; i++) {
		free(p->expressions[i].text);
		free(p->expressions[i].lowered);
	}
	free(p->expressions);
	free(p->name), free(p->text), free(p->log), free(p->ptx), free(p->cubin), free(p->ltoir);
	free(p);
	*at = 0;
	return OK;
}

/* What options ask for. */
struct options { int arch; bool machine, lto, relocatable; int n; const char *const *list; };

/* option_read reads one, which may have its value in the next. */
static bool option_read(struct options *o, const char *option, FILE *log)
{
	const char *value = strchr(option, '=');
	size_t n = value ? (size_t)(value - option) : strlen(option);
	const char *digits;

	if (*option != '-') /* the value of an option before */
		return true;
	if (!strncmp(option, "-dlto", n) || !strncmp(option, "--dlink-time-opt", n))
		o->lto = true;
	if ((!strncmp(option, "-dc", n) && n == 3) || !strncmp(option, "--relocatable-device-code", n) || !strncmp(option, "-rdc", n))
		o->relocatable = true;
	if (strncmp(option, "-arch", n) && strncmp(option, "--gpu-architecture", n))
		return true;
	digits = value ? strpbrk(value, "0123456789") : 0;
	if (!digits || !known(atoi(digits)) || (strncmp(value, "=sm_", 4) && strncmp(value, "=compute_", 9) && strncmp(value, "=lto_", 5))) {
		fprintf(log, "nvrtc: error: invalid value for --gpu-architecture (-arch)\n");
		return false;
	}
	o->arch = atoi(digits);
	o->machine = value[1] == 's';
	o->lto |= value[1] == 'l';
	return true;
}

/* names finds what the expressions stand for. */
static void names(nvrtcProgram p, struct source *s)
{
	for (int i = 0; i < p->n; i++) {
		const char *text = p->expressions[i].text;
		int k = source_instance(s, text);
		const struct variable *v = k < 0 ? variable_find(s, text) : 0;

		if (v && v->hidden)
			source_error(s, 1, "%s is of this source alone: the simulated driver's NVRTC does not know its symbol", v->name);
		else if (k < 0 && !v)
			source_error(s, 1, "the name expression \"%s\" is that of no kernel, and not the address of a variable", text);
		else
			p->expressions[i].lowered = v ? type_symbol(v) : type_lowered(&s->kernels[k]);
	}
}

static void source_free(struct source *s)
{
	for (int i = 0; i < s->n; i++)
		if (!s->kernels[i].narguments) /* else it shares the template's */
			free(s->kernels[i].name);
	free(s->kernels);
	for (int i = 0; i < s->nvariables; i++) {
		free(s->variables[i].name);
		free(s->variables[i].bytes);
	}
	free(s->variables);
	for (int i = 0; i < s->nconstants; i++) {
		free(s->constants[i].name);
		free(s->constants[i].text);
	}
	free(s->constants);
}

/* define adds the macro of an option, which may have it in the next. */
static void define(struct source *s, const char *option, const char *after)
{
	const char *text = !strcmp(option, "-D") || !strcmp(option, "--define-macro") ? after : !strncmp(option, "-D", 2) ? option + 2 :
		!strncmp(option, "--define-macro=", 15) ? option + 15 : "";
	const char *value = strchr(text, '=');
	char *name;

	if (!*text || asprintf(&name, "%.*s", value ? (int)(value - text) : (int)strlen(text), text) < 0)
		return;
	constant_add(s, name, value ? value + 1 : "1");
	free(name);
}

#define CONSTANTS (64 << 10) /* bytes of a module */

/* compile reads the source and makes the images. */
static bool compile(nvrtcProgram p, const struct options *o, FILE *log)
{
	struct source s = {.name = p->name, .text = p->text, .log = log, .relocatable = o->relocatable};

	for (int i = 0; i < o->n; i++)
		define(&s, o->list[i], i + 1 < o->n ? o->list[i + 1] : "");
	source_read(&s);
	names(p, &s);
	if (!s.errors && !s.n && !s.device && !o->lto && !o->relocatable)
		source_error(&s, 1, "there is no kernel here; the simulated driver's NVRTC compiles nothing else");
	if (o->machine && variable_constants(&s) > CONSTANTS)
		source_error(&s, 1, "%zu bytes of constants are too many, %d are possible", variable_constants(&s), CONSTANTS);
	if (!s.errors) {
		p->ptx = image_ptx(&s, o->arch);
		if (o->machine)
			p->cubin = image_cubin(&s, o->arch, &p->cubin_size);
		if (o->lto)
			p->ltoir = strdup(p->ptx);
	} else {
		fprintf(log, "%d error%s detected in the compilation of \"%s\".\n", s.errors, s.errors > 1 ? "s" : "", p->name);
	}
	source_free(&s);
	return !s.errors;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *list)
{
	struct options o = {.arch = SIM_VERSION < 13000 ? 52 : 75, .n = n, .list = list};
	FILE *log;
	nvrtcResult r = OK;

	if (!p)
		return INVALID_PROGRAM;
	if (n < 0 || (n && !list))
		return INVALID_INPUT;
	if (p->flow && p->flow(p->payload, 0))
		return CANCELLED;
	log = text_open();
	for (int i = 0; i < n && !r; i++)
		r = list[i] && option_read(&o, list[i], log) ? OK : INVALID_OPTION;
	if (!r && !compile(p, &o, log))
		r = COMPILATION;
	free(p->log);
	p->log = text_close(log);
	p->compiled = true;
	return r;
}

/* What was compiled is given with its size, which is 0 if there is nothing, or as its bytes. */
static nvrtcResult give_size(const char *from, size_t size, size_t *to)
{
	if (!to)
		return INVALID_INPUT;
	*to = from ? size : 0;
	return OK;
}

static nvrtcResult give(const char *from, size_t size, char *to)
{
	if (!to)
		return INVALID_INPUT;
	if (!from)
		return INVALID_PROGRAM;
	memcpy(to, from, size);
	return OK;
}

#define GIVES(what, member, size) \
	nvrtcResult nvrtcGet##what##Size(nvrtcProgram p, size_t *n) { return p && p->compiled ? give_size(p->member, size, n) : INVALID_PROGRAM; } \
	nvrtcResult nvrtcGet##what(nvrtcProgram p, char *to) { return p && p->compiled ? give(p->member, size, to) : INVALID_PROGRAM; }

static size_t length(const char *text) { return text ? strlen(text) + 1 : 0; }

GIVES(PTX, ptx, length(p->ptx))
GIVES(CUBIN, cubin, p->cubin_size)
GIVES(LTOIR, ltoir, length(p->ltoir))

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n) { return p ? give_size(p->log, length(p->log), n) : INVALID_PROGRAM; }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *to) { return p ? give(p->log, length(p->log), to) : INVALID_PROGRAM; }
nvrtcResult nvrtcGetOptiXIRSize(nvrtcProgram p, size_t *n) { return p ? give_size(0, 0, n) : INVALID_PROGRAM; }
nvrtcResult nvrtcGetOptiXIR(nvrtcProgram p, char *to) { return p ? give(0, 0, to) : INVALID_PROGRAM; }

nvrtcResult nvrtcAddNameExpression(nvrtcProgram p, const char *text)
{
	if (!p)
		return INVALID_PROGRAM;
	if (!text)
		return INVALID_INPUT;
	if (p->compiled)
		return NO_EXPRESSIONS_AFTER;
	p->expressions = realloc(p->expressions, (p->n + 1) * sizeof *p->expressions);
	p->expressions[p->n++] = (struct expression){strdup(text), 0};
	return OK;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char *text, const char **lowered)
{
	if (!p)
		return INVALID_PROGRAM;
	if (!text || !lowered)
		return INVALID_INPUT;
	if (!p->compiled)
		return NO_NAMES_BEFORE;
	for (int i = 0; i < p->n; i++)
		if (!strcmp(p->expressions[i].text, text) && (*lowered = p->expressions[i].lowered))
			return OK;
	return NOT_VALID;
}

/* No headers are ever compiled before. */
static size_t heap = 256 << 20;

nvrtcResult nvrtcGetPCHHeapSize(size_t *size) { return size ? (*size = heap, OK) : INVALID_INPUT; }
nvrtcResult nvrtcSetPCHHeapSize(size_t size) { return heap = size, OK; }
nvrtcResult nvrtcGetPCHCreateStatus(nvrtcProgram p) { return p ? NO_PCH : INVALID_PROGRAM; }
nvrtcResult nvrtcGetPCHHeapSizeRequired(nvrtcProgram p, size_t *size) { return !p ? INVALID_PROGRAM : size ? (*size = 0, OK) : INVALID_INPUT; }

nvrtcResult nvrtcSetFlowCallback(nvrtcProgram p, int (*flow)(void *, void *), void *payload)
{
	if (!p)
		return INVALID_PROGRAM;
	p->flow = flow;
	p->payload = payload;
	return OK;
}
