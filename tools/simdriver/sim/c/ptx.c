#include <ctype.h>

#include "sim.h"

/*
 * As much of PTX as tells what a module has: its kernels with their parameters,
 * and its global variables. The bodies are skipped.
 */
struct text {
	const char *at;
	int line;
	int version; /* 10 times the major number and the minor one */
	size_t local; /* memory that a thread needs for what was skipped last */
	char word[4096];
};

static void space(struct text *t)
{
	for (bool comment = false; *t->at; t->at++) {
		if (*t->at == '\n')
			t->line++;
		if (comment) {
			comment = t->at[-1] != '*' || t->at[0] != '/';
		} else if (t->at[0] == '/' && t->at[1] == '*') {
			comment = true;
			t->at++;
		} else if (t->at[0] == '/' && t->at[1] == '/') {
			while (t->at[1] && t->at[1] != '\n')
				t->at++;
		} else if (!isspace((unsigned char)*t->at)) {
			return;
		}
	}
}

/* next reads a word, or one character that is none. A string is read as one quote. */
static const char *next(struct text *t)
{
	size_t n = 0;

	space(t);
	while (n < sizeof t->word - 1 && (isalnum((unsigned char)*t->at) || (*t->at && strchr("._$%", *t->at))))
		t->word[n++] = *t->at++;
	if (!n && *t->at)
		t->word[n++] = *t->at++;
	t->word[n] = 0;
	if (t->word[0] == '"') {
		while (*t->at && *t->at != '"' && *t->at != '\n')
			t->at++;
		t->at += *t->at == '"';
	}
	return t->word;
}

static bool is(struct text *t, const char *word)
{
	return !strcmp(t->word, word);
}

/* begins tells whether the next word begins with a character, and leaves it there. */
static bool begins(struct text *t, char with)
{
	space(t);
	return *t->at == with;
}

static size_t bytes_of(const char *type)
{
	size_t bits = strlen(type) > 2 ? strtoul(type + 2, 0, 10) : 0;

	return bits / 8;
}

/* pointed skips the attributes of the memory that a parameter points to. */
static void pointed(struct text *t)
{
	if (!is(t, ".ptr"))
		return;
	for (next(t); t->word[0] == '.'; next(t))
		if (is(t, ".align"))
			next(t);
}

#define DIMS 8

/* What stands after .param or a space. */
struct variable {
	char name[4096], type[16];
	size_t element, size, align, counts[DIMS]; /* the counts are of values within each other */
	int dims;
	bool managed, untold; /* NVRTC's double writes "..." for what it cannot tell */
};

static bool count(struct variable *v, size_t n)
{
	if (!n || v->dims == DIMS || v->size > SIZE_MAX / n)
		return false;
	v->counts[v->dims++] = n;
	v->size *= n;
	return true;
}

/* variable reads alignment, type, name and counts. */
static bool variable(struct text *t, struct variable *v)
{
	size_t vector = 0;

	memset(v, 0, sizeof *v);
	for (next(t); is(t, ".align") || is(t, ".attribute") || is(t, ".v2") || is(t, ".v4"); next(t)) {
		if (is(t, ".align"))
			v->align = strtoul(next(t), 0, 10);
		else if (is(t, ".attribute"))
			while (*next(t) && !is(t, ")"))
				v->managed |= is(t, ".managed");
		else
			vector = t->word[2] - '0';
	}
	snprintf(v->type, sizeof v->type, "%.15s", t->word);
	v->size = v->element = bytes_of(v->type);
	if (!v->align)
		v->align = v->element * (vector ? vector : 1);
	next(t);
	pointed(t);
	strcpy(v->name, t->word);
	while (begins(t, '[')) {
		next(t);
		v->untold |= !strcmp(next(t), "...") || is(t, "]");
		if (!v->untold && !count(v, strtoul(t->word, 0, 0)))
			return false;
		if (!is(t, "]") && strcmp(next(t), "]"))
			return false;
	}
	if (vector && !count(v, vector))
		return false;
	return v->size && v->align && v->name[0];
}

/* -- first values of variables -- */

/* unknown skips a value that is an address, up to the comma or bracket after it. */
static void unknown(struct text *t, char *to, size_t size)
{
	int depth = 0;

	memset(to, UNKNOWN_BYTE, size);
	for (; *t->at && (depth || !strchr(",};", *t->at)); t->at++)
		depth += (*t->at == '(') - (*t->at == ')');
}

/* value reads one of a type: a number, or the bits of one after 0f and 0d. */
static void value(struct text *t, const struct variable *v, char *to)
{
	bool minus = begins(t, '-'), real = v->type[1] == 'f';
	const char *from = t->at + minus;
	char *end;
	double number;
	float single;
	uint64_t bits;

	if (!isdigit((unsigned char)*from)) {
		unknown(t, to, v->element);
		return;
	}
	if (*from == '0' && from[1] && strchr("fFdD", from[1])) {
		bits = strtoull(from + 2, &end, 16);
		minus = false;
		if (v->element == 4 && tolower((unsigned char)from[1]) == 'd') {
			memcpy(&number, &bits, sizeof number);
			single = number;
			memcpy(&bits, &single, sizeof single);
		}
	} else if (real && v->element >= 4) {
		number = strtod(t->at, &end);
		single = number;
		if (v->element == 4)
			memcpy(&bits, &single, sizeof single);
		else
			memcpy(&bits, &number, sizeof number);
		minus = false;
	} else {
		bits = strtoull(from, &end, 0);
	}
	end += *end == 'U';
	bits = minus ? -bits : bits;
	memcpy(to, &bits, v->element < 8 ? v->element : 8);
	t->at = end;
	space(t);
	if (!strchr(",};", *t->at)) /* a part of an address, or of something else */
		unknown(t, to, v->element);
}

/* values reads those in braces, which are for so many bytes: the counts from a depth on. */
static bool values(struct text *t, const struct variable *v, int depth, char *to, size_t size)
{
	size_t each = depth < v->dims ? size / v->counts[depth] : 0, at = 0;

	for (next(t); !begins(t, '}'); ) {
		bool inner = begins(t, '{');

		if (at >= size || (inner && (!each || at % each)))
			return false;
		if (inner && !values(t, v, depth + 1, to + at, each))
			return false;
		if (!inner)
			value(t, v, to + at);
		at += inner ? each : v->element;
		if (begins(t, ','))
			next(t);
		else if (!begins(t, '}'))
			return false;
	}
	next(t);
	return true;
}

/* skip goes to the end of the declaration that the word begins: its semicolon, or the end of its body. */
static bool skip(struct text *t)
{
	struct variable v;
	int depth = 0;

	for (t->local = 0; t->word[0]; next(t)) {
		if (is(t, ".local") && variable(t, &v))
			t->local += v.size;
		depth += is(t, "{") - is(t, "}");
		if (!depth && (is(t, ";") || (is(t, "}") && !begins(t, ';'))))
			return true;
	}
	return false;
}

void param_add(struct param *params, int *n, size_t size, size_t align)
{
	size_t offset = *n ? params[*n - 1].offset + params[*n - 1].size : 0;

	params[(*n)++] = (struct param){(offset + align - 1) / align * align, size};
}

static size_t param_bytes(const struct function *f)
{
	const struct param *last = f->nparams ? &f->params[f->nparams - 1] : 0;

	return last ? last->offset + last->size : 0;
}

static bool parameters(struct text *t, struct function *f)
{
	struct variable v;

	for (next(t); !is(t, ")"); next(t)) {
		if (is(t, ","))
			next(t);
		if (is(t, "...")) { /* NVRTC's double writes this for what it does not know */
			f->untold = true;
			continue;
		}
		if (!is(t, ".param") || f->nparams == MOST_PARAMS || !variable(t, &v))
			return false;
		param_add(f->params, &f->nparams, v.size, v.align);
	}
	return param_bytes(f) <= (t->version < 81 ? 4352 : 32764);
}

/* product reads numbers with commas between them. */
static int product(struct text *t)
{
	int n = atoi(next(t));

	while (begins(t, ',')) {
		next(t);
		n *= atoi(next(t));
	}
	return n;
}

static bool entry(struct text *t, struct module *m)
{
	struct function *f = function_add(m, next(t));

	if (begins(t, '(') && (next(t), !parameters(t, f)))
		return false;
	while (*next(t) && !is(t, "{"))
		if (is(t, ".maxntid") || is(t, ".reqntid"))
			f->max_threads = product(t);
	if (!skip(t))
		return false;
	f->attributes[LOCAL_SIZE] = t->local;
	return true;
}

#define CONSTANTS (64 << 10) /* bytes of a module */

/* variable_add reads a variable of a module. CUDA finds it by its name, visible or not. */
static bool variable_add(struct text *t, struct module *m, bool visible)
{
	bool constant = is(t, ".const");
	struct variable v;
	struct global *g;
	size_t all = 0;

	if (!variable(t, &v))
		return !bytes_of(v.type) && skip(t); /* a texture or the like */
	g = global_add(m, v.name, v.size);
	g->managed = v.managed;
	g->constant = constant;
	g->visible = visible;
	g->untold = v.untold;
	if (!v.untold && begins(t, '=')) {
		next(t);
		if (!(g->bytes = calloc(1, v.size)))
			return false;
		if (!begins(t, '{'))
			value(t, &v, g->bytes);
		else if (!values(t, &v, 0, g->bytes, v.size))
			return false;
	}
	for (int i = 0; i < m->nglobals; i++)
		all += m->globals[i].constant && !m->globals[i].untold ? m->globals[i].size : 0;
	return all <= CONSTANTS && (!strcmp(next(t), ";") || skip(t));
}

/* declaration reads what the linking directive, if there is one, is about. */
static bool declaration(struct text *t, struct module *m, bool visible)
{
	if (is(t, ".entry"))
		return entry(t, m);
	if (is(t, ".func") || is(t, ".shared"))
		return skip(t);
	return (is(t, ".global") || is(t, ".const")) && variable_add(t, m, visible);
}

static bool directive(struct text *t, struct module *m)
{
	bool seen = is(t, ".visible") || is(t, ".weak") || is(t, ".common");

	if (is(t, ".target")) {
		next(t);
		while (begins(t, ',')) {
			next(t);
			next(t);
		}
		return t->word[0];
	}
	if (is(t, ".address_size"))
		return *next(t);
	if (is(t, ".file")) {
		t->at += strcspn(t->at, "\n");
		return true;
	}
	if (is(t, ".extern") || is(t, ".section") || is(t, ".pragma") || is(t, ".alias"))
		return skip(t);
	if (seen)
		next(t);
	return declaration(t, m, seen);
}

CUresult ptx_read(struct module *m, const char *text, int *line)
{
	struct text *t = calloc(1, sizeof *t);
	CUresult r = OK;
	int major, minor;

	t->at = text;
	t->line = 1;
	while (!r && *next(t)) {
		if (!is(t, ".version"))
			r = directive(t, m) ? OK : INVALID_PTX;
		else if (sscanf(next(t), "%d.%d", &major, &minor) != 2)
			r = INVALID_PTX;
		else if ((t->version = 10 * major + minor) > SIM_PTX)
			r = NEWER_PTX;
	}
	*line = t->line;
	free(t);
	return r;
}

void ptx_told(char *to, size_t size, CUresult why, int line)
{
	if (!to || !size)
		return;
	if (why == NEWER_PTX)
		snprintf(to, size, "simulated driver: line %d: this version of PTX is newer than %d.%d, which a driver for CUDA %d.%d knows",
			line, SIM_PTX / 10, SIM_PTX % 10, SIM_VERSION / 1000, SIM_VERSION % 1000 / 10);
	else
		snprintf(to, size, "simulated driver: line %d is not understood", line);
}

bool ptx_looks(const char *image)
{
	const char *version = strstr(image[0] == 0x7f ? "" : image, ".version");

	for (const char *at = image; version && at < version; at++)
		if (*at != '\n' && !strncmp(at, "//", 2))
			at += strcspn(at, "\n");
		else if (!isspace((unsigned char)*at))
			return false;
	return version;
}
