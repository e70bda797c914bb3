#include "nvrtc.h"

#include <ctype.h>

/* As much of a declaration as tells the names, sizes and first values of variables. */
struct words {
	struct source *source;
	const struct declaration *declaration;
	const char *at;
	char word[1024];
	char type[1024]; /* of all that it declares */
	bool fixed, isolated, outside; /* const, static, extern */
	bool constant, managed, device; /* the memory that it is in */
};

static bool next(struct words *w)
{
	size_t n = strcspn(w->at, "\n");

	snprintf(w->word, sizeof w->word, "%.*s", (int)n, w->at);
	w->at += n + (w->at[n] == '\n');
	return n;
}

static bool is(const struct words *w, const char *word) { return !strcmp(w->word, word); }

/* ahead tells whether the next word is this one, and leaves it there. */
static bool ahead(const struct words *w, const char *word)
{
	size_t n = strlen(word);

	return !strncmp(w->at, word, n) && w->at[n] == '\n';
}

static bool among(const char *word, const char *const *list)
{
	while (*list && strcmp(*list, word))
		list++;
	return *list;
}

static const char *const attributes[] = {"__align__", "alignas", "__attribute__", "__launch_bounds__", 0};
static const char *const others[] = {"struct", "class", "union", "enum", "typedef", "using", "operator", "friend", "static_assert", "asm", "auto", 0};

/* specifier reads a word that is no part of the type. */
static bool specifier(struct words *w)
{
	bool known = true;

	if (is(w, "__constant__"))
		w->constant = true;
	else if (is(w, "__managed__"))
		w->managed = true;
	else if (is(w, "__device__"))
		w->device = true;
	else if (is(w, "const") || is(w, "constexpr"))
		w->fixed = true;
	else if (is(w, "static"))
		w->isolated = true;
	else if (is(w, "extern"))
		w->outside = true;
	else
		known = is(w, "volatile") || is(w, "inline") || is(w, "\"C\"");
	return known;
}

/* enclosed skips to the closing bracket, after the opening one. */
static void enclosed(struct words *w, const char *open, const char *close)
{
	for (int depth = 1; depth && next(w);)
		depth += is(w, open) - is(w, close);
}

/* begins reads the specifiers and the type up to the first name or star. It is false for what declares no variable. */
static bool begins(struct words *w)
{
	while (!ahead(w, "*") && next(w)) {
		bool more = *w->at && !strchr("[={,", *w->at);
		size_t n;

		if (specifier(w))
			continue;
		if (among(w->word, attributes) && ahead(w, "(")) {
			next(w);
			enclosed(w, "(", ")");
			continue;
		}
		if (among(w->word, others) || strchr("(&~", *w->word))
			return false;
		if (!more) {
			w->at -= strlen(w->word) + 1; /* the name */
			return *w->type;
		}
		n = strlen(w->type);
		snprintf(w->type + n, sizeof w->type - n, "%s%s", n && !is(w, "::") && w->type[n - 1] != ':' ? " " : "", w->word);
		if (is(w, "<"))
			enclosed(w, "<", ">");
	}
	return *w->type && *w->at;
}

bool variable_opens(const char *text)
{
	struct words w = {.at = text};
	size_t n = strlen(text);

	if (n >= 2 && !strcmp(text + n - 2, "=\n"))
		return true;
	return !strchr(text, '(') && begins(&w) && (w.constant || w.managed || w.device || w.fixed);
}

/* -- one variable -- */

#define DIMS 8
struct shape { char letter; size_t element, counts[DIMS]; int n; bool known, open; };

/* expression joins the words up to one of those that may end it, and leaves that there. */
static char *expression(struct words *w, const char *ends)
{
	char *to = strdup("");
	size_t n = 0;

	for (int depth = 0; *w->at && (depth || !strchr(ends, *w->at));) {
		next(w);
		depth += is(w, "(") - is(w, ")");
		to = realloc(to, n + strlen(w->word) + 1);
		strcpy(to + n, w->word);
		n += strlen(w->word);
	}
	return to;
}

/* counts reads those of an array. */
static void counts(struct words *w, const char *name, struct shape *s)
{
	while (ahead(w, "[")) {
		char *text;
		int64_t n;

		next(w);
		text = expression(w, "]");
		next(w);
		if (!*text && !s->n) {
			s->open = true;
			n = 1;
		} else if (!number_whole(w->source, text, &n)) {
			s->known = false;
			n = 1;
		}
		free(text);
		if (n < 1) {
			source_error(w->source, w->declaration->line, "the size of the array %s must be greater than zero", name);
			n = 1;
		}
		if (s->n < DIMS && n <= INT32_MAX)
			s->counts[s->n++] = n;
		else
			s->known = false;
	}
}

/* What is known of the values so far. */
struct values { char *bytes; size_t size, room; bool known, many; };

static char *place(struct values *v, size_t at, size_t size)
{
	if (at + size > v->room) {
		v->bytes = realloc(v->bytes, 2 * (at + size));
		memset(v->bytes + v->room, 0, 2 * (at + size) - v->room);
		v->room = 2 * (at + size);
	}
	if (v->size < at + size)
		v->size = at + size;
	return v->bytes + at;
}

/* one reads a value to a place. */
static void one(struct words *w, const struct shape *s, struct values *v, size_t at)
{
	char *text = expression(w, ",}");

	v->known &= *text && number_store(w->source, text, s->letter, s->element, place(v, at, s->element));
	free(text);
}

/* braces reads the values in braces, which are for so many bytes from a place: the counts from a depth on. */
static void braces(struct words *w, const struct shape *s, struct values *v, int depth, size_t from, size_t size)
{
	size_t each = s->element, at = from;

	for (int i = depth + 1; i < s->n; i++)
		each *= s->counts[i];
	for (next(w); *w->at && !ahead(w, "}");) {
		bool inner = ahead(w, "{");

		if (at - from >= size) {
			v->many = true;
			return;
		}
		if (inner && (depth >= s->n || (at - from) % each)) {
			v->known = false;
			return;
		}
		if (inner)
			braces(w, s, v, depth + 1, at, each);
		else
			one(w, s, v, at);
		if (!v->known || v->many)
			return;
		at += inner ? each : s->element;
		if (ahead(w, ","))
			next(w);
	}
	next(w);
}

/* first reads the first values of a variable of so many bytes, or of such parts, if there are some. */
static struct values first(struct words *w, const struct shape *s, size_t size)
{
	struct values v = {.known = s->known};

	if (ahead(w, "="))
		next(w);
	else if (!ahead(w, "{"))
		return v;
	if (ahead(w, "{") && s->known)
		braces(w, s, &v, 0, 0, s->open ? SIZE_MAX : size);
	else if (s->known && !s->n)
		one(w, s, &v, 0);
	else
		v.known = false; /* a string, or nobody knows how large */
	return v;
}

/* fill tells a variable's size and first values, as far as they are known. */
static void fill(struct variable *v, const struct shape *s, struct values *read, size_t size)
{
	if (!s->known || !read->known) {
		free(read->bytes);
		return;
	}
	if (s->open) /* it has as many parts as there are values */
		size = (read->size + size - 1) / size * size;
	if (read->bytes)
		place(read, size - 1, 1);
	v->bytes = read->bytes;
	v->size = size;
}

static void add(struct source *s, struct variable v)
{
	for (int i = 0; i < s->nvariables; i++) {
		struct variable *other = &s->variables[i];

		if (strcmp(other->name, v.name))
			continue;
		if (other->size != v.size || !other->bytes != !v.bytes || (v.bytes && memcmp(other->bytes, v.bytes, v.size)))
			other->size = 0; /* which one counts, only the preprocessor knows */
		return;
	}
	s->variables = realloc(s->variables, (s->nvariables + 1) * sizeof v);
	s->variables[s->nvariables++] = v;
}

/* variable reads what follows the type, up to the comma or the end. It is false for what is no variable. */
static bool variable(struct words *w)
{
	struct variable v = {.constant = w->constant, .managed = w->managed, .c = w->declaration->c};
	struct shape s = {.known = true};
	struct values read;
	bool pointer = false, fixed = w->fixed;
	char *declared;
	size_t size;
	int parts;

	for (; ahead(w, "*") || ahead(w, "const") || ahead(w, "__restrict__") || ahead(w, "volatile");) {
		next(w);
		fixed = is(w, "*") ? false : fixed || is(w, "const");
		pointer |= is(w, "*");
	}
	if (!next(w) || (!isalpha((unsigned char)*w->word) && *w->word != '_') || asprintf(&declared, "%s %s%s", w->type, pointer ? "*" : "", w->word) < 0 ||
		asprintf(&v.name, "%s%s", w->declaration->space, w->word) < 0)
		return false;
	s.letter = pointer ? 0 : type_letter(declared);
	s.element = type_size(&(struct kernel){0}, declared);
	free(declared);
	counts(w, v.name, &s);
	v.array = s.n > 0;
	if (!pointer && (parts = type_vector(w->type, &s.letter))) { /* an array of values, but for its symbol */
		s.known &= s.n < DIMS;
		s.element /= parts;
		s.counts[s.n] = parts;
		s.n += s.n < DIMS;
	}
	size = s.element;
	s.known &= size > 0;
	for (int i = 0; i < s.n; i++)
		s.known &= !__builtin_mul_overflow(size, s.counts[i], &size);
	v.hidden = w->declaration->unnamed || (*w->declaration->space && !v.c && (w->isolated || (fixed && !w->outside)));
	v.outside = w->outside && !ahead(w, "=") && !ahead(w, "{");
	read = first(w, &s, size);
	if (read.many)
		source_error(w->source, w->declaration->line, "%s has too many first values", v.name);
	fill(&v, &s, &read, size);
	add(w->source, v);
	if (*w->at && !ahead(w, ","))
		return false;
	return next(w);
}

/* constant reads one of which the value is an expression. */
static void constant(struct words *w)
{
	char *name, *text;

	if (ahead(w, "*") || !next(w) || (!ahead(w, "=") && !ahead(w, "{")))
		return;
	name = strdup(w->word);
	next(w);
	text = expression(w, "},");
	constant_add(w->source, name, text);
	free(name);
	free(text);
}

void variable_read(struct source *s, const struct declaration *d)
{
	struct words w = {.source = s, .declaration = d, .at = d->text}, again;

	if (!begins(&w))
		return;
	again = w;
	if (w.fixed)
		constant(&again);
	if (!w.constant && !w.managed && !w.device)
		return;
	while (variable(&w))
		;
}

const struct variable *variable_find(const struct source *s, const char *expression)
{
	const char *name = expression + strspn(expression, " &:");
	size_t n = strcspn(name, " ");

	for (int i = 0; i < s->nvariables; i++) {
		const struct variable *v = &s->variables[i];

		if (strlen(v->name) == n && !strncmp(v->name, name, n) && !v->managed && (v->array || strchr(expression, '&')))
			return v;
	}
	return 0;
}

size_t variable_constants(const struct source *s)
{
	size_t all = 0;

	for (int i = 0; i < s->nvariables; i++)
		all += s->variables[i].constant ? s->variables[i].size : 0;
	return all;
}
