#include <ctype.h>

#include "sim.h"

/*
 * As much of PTX as tells what a module has: its kernels with their parameters,
 * and its global variables. The bodies are skipped.
 */
struct text {
	const char *at;
	int line;
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

/* variable reads what follows .param or a space: alignment, type, name and counts. */
static bool variable(struct text *t, size_t *size, size_t *align, char *name, size_t room)
{
	size_t values = 1;

	*align = 0;
	for (next(t); is(t, ".align") || is(t, ".attribute") || is(t, ".v2") || is(t, ".v4"); next(t)) {
		if (is(t, ".align"))
			*align = strtoul(next(t), 0, 10);
		else if (is(t, ".attribute"))
			while (*next(t) && !is(t, ")"))
				;
		else
			values = t->word[2] - '0';
	}
	*size = bytes_of(t->word) * values;
	if (!*align)
		*align = *size;
	next(t);
	pointed(t);
	snprintf(name, room, "%s", t->word);
	while (begins(t, '[')) {
		next(t);
		*size *= strtoul(next(t), 0, 10);
		if (strcmp(next(t), "]"))
			return false;
	}
	return *size && *align && name[0];
}

/* skip goes to the end of the declaration that the word begins: its semicolon, or the end of its body. */
static bool skip(struct text *t)
{
	size_t size, align;
	char name[sizeof t->word];
	int depth = 0;

	for (t->local = 0; t->word[0]; next(t)) {
		if (is(t, ".local") && variable(t, &size, &align, name, sizeof name))
			t->local += size;
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

static bool parameters(struct text *t, struct function *f)
{
	size_t size, align;
	char name[sizeof t->word];

	for (next(t); !is(t, ")"); next(t)) {
		if (is(t, ","))
			next(t);
		if (is(t, "...")) { /* NVRTC's double writes this for what it does not know */
			f->untold = true;
			continue;
		}
		if (!is(t, ".param") || f->nparams == MOST_PARAMS || !variable(t, &size, &align, name, sizeof name))
			return false;
		param_add(f->params, &f->nparams, size, align);
	}
	return true;
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

/* declaration reads what the linking directive, if there is one, is about. */
static bool declaration(struct text *t, struct module *m, bool seen)
{
	size_t size, align;
	char name[sizeof t->word];

	if (is(t, ".entry"))
		return entry(t, m);
	if (is(t, ".func") || is(t, ".shared"))
		return skip(t);
	if (!is(t, ".global") && !is(t, ".const"))
		return false;
	if (!seen)
		return skip(t);
	if (!variable(t, &size, &align, name, sizeof name))
		return false;
	global_add(m, name, size);
	return skip(t);
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
		else if (10 * major + minor > SIM_PTX)
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
