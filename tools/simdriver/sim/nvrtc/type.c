#include "nvrtc.h"

#include <ctype.h>

static const struct { const char *name; char letter; size_t size; } types[] = {
	{"bool", 'b', 1}, {"char", 'c', 1}, {"signed char", 'a', 1}, {"unsigned char", 'h', 1}, {"short", 's', 2}, {"unsigned short", 't', 2},
	{"int", 'i', 4}, {"unsigned int", 'j', 4}, {"long", 'l', 8}, {"unsigned long", 'm', 8}, {"long long", 'x', 8},
	{"unsigned long long", 'y', 8}, {"float", 'f', 4}, {"double", 'd', 8},
	{"unsigned", 'j', 4}, {"signed", 'i', 4}, {"short int", 's', 2}, {"long int", 'l', 8}, {"unsigned short int", 't', 2},
	{"unsigned long int", 'm', 8}, {"long long int", 'x', 8}, {"unsigned long long int", 'y', 8},
	{"size_t", 'm', 8}, {"std::size_t", 'm', 8}, {"ptrdiff_t", 'l', 8}, {"int8_t", 'a', 1}, {"uint8_t", 'h', 1}, {"int16_t", 's', 2},
	{"uint16_t", 't', 2}, {"int32_t", 'i', 4}, {"uint32_t", 'j', 4}, {"int64_t", 'l', 8}, {"uint64_t", 'm', 8}, {"uintptr_t", 'm', 8},
	{"cudaTextureObject_t", 'y', 8}, {"cudaSurfaceObject_t", 'y', 8}, {"cudaGraphConditionalHandle", 'y', 8},
	{"__half", 0, 2}, {"half", 0, 2}, {"__nv_bfloat16", 0, 2}, {"__nv_fp8_e4m3", 0, 1}, {"__nv_fp8_e5m2", 0, 1},
};

static int find(const char *name)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, name))
			return i;
	return -1;
}

int type_vector(const char *name, char *letter)
{
	static const struct { const char *name; char letter; } of[] = {
		{"char", 'a'}, {"uchar", 'h'}, {"short", 's'}, {"ushort", 't'}, {"int", 'i'}, {"uint", 'j'}, {"long", 'l'}, {"ulong", 'm'},
		{"longlong", 'x'}, {"ulonglong", 'y'}, {"float", 'f'}, {"double", 'd'},
	};
	size_t n = strlen(name);

	for (size_t i = 0; n && i < sizeof of / sizeof *of; i++)
		if (strlen(of[i].name) == n - 1 && !strncmp(of[i].name, name, n - 1) && name[n - 1] >= '1' && name[n - 1] <= '4') {
			*letter = of[i].letter;
			return name[n - 1] - '0';
		}
	return 0;
}

/* vector_size is the size of one of those types, or 0. */
static size_t vector_size(const char *name)
{
	char letter;
	int n = type_vector(name, &letter);

	for (size_t i = 0; n; i++)
		if (types[i].letter == letter)
			return n * types[i].size;
	return 0;
}

static bool qualifier(const char *word)
{
	static const char *const all[] = {"const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "struct", "enum", "typename"};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i], word))
			return true;
	return false;
}

/* plain writes a type without what does not count, and with one space between words. */
static void plain(const char *text, char *to, size_t size)
{
	char *copy = strdup(text), *rest;
	size_t n = 0;

	*to = 0;
	for (char *word = strtok_r(copy, " \t\n", &rest); word && n < size; word = strtok_r(0, " \t\n", &rest))
		if (!qualifier(word))
			n += snprintf(to + n, size - n, "%s%s", n ? " " : "", word);
	free(copy);
}

size_t type_size(const struct kernel *k, const char *parameter)
{
	char text[2048], *name;
	size_t size;
	int i;

	plain(parameter, text, sizeof text);
	if (strpbrk(text, "*["))
		return 8;
	/* The last word may be the parameter's name. */
	for (int cut = 0; cut < 2; cut++) {
		if ((i = find(text)) >= 0)
			return types[i].size;
		if ((size = vector_size(text)))
			return size;
		for (i = 0; i < k->nvariables && i < k->narguments; i++)
			if (!strcmp(k->variables[i], text))
				return type_size(&(struct kernel){0}, k->arguments[i]);
		if (!(name = strrchr(text, ' ')))
			break;
		*name = 0;
	}
	return 0;
}

size_t type_align(size_t size) { return size % 3 ? size < 16 ? size : 16 : size / 3; }

char type_letter(const char *declared)
{
	char text[2048], *name;
	int i;

	plain(declared, text, sizeof text);
	if ((i = find(text)) < 0 && (name = strrchr(text, ' '))) {
		*name = 0;
		i = find(text);
	}
	return i < 0 ? 0 : types[i].letter;
}

/* source writes a name as compilers do: its length, and it. */
static void source(FILE *to, const char *name, size_t n)
{
	fprintf(to, "%zu%.*s", n, (int)n, name);
}

/* path writes a name with namespaces, which is open for arguments if it has some. */
static bool path(FILE *to, const char *name)
{
	bool nested = strstr(name, "::");

	if (nested)
		fputc('N', to);
	for (const char *end; *name; name = *end ? end + 2 : end) {
		end = strstr(name, "::");
		end = end ? end : name + strlen(name);
		source(to, name, end - name);
	}
	return nested;
}

static void argument(FILE *to, const char *text)
{
	char type[1024];
	size_t n;
	int i;

	plain(text, type, sizeof type);
	n = strlen(type);
	for (; n && (type[n - 1] == '*' || type[n - 1] == ' '); type[--n] = 0)
		if (type[n - 1] == '*')
			fputc('P', to);
	if (!strcmp(type, "true") || !strcmp(type, "false"))
		fprintf(to, "Lb%dE", type[0] == 't');
	else if (isdigit((unsigned char)type[0]) || type[0] == '-')
		fprintf(to, "Li%s%ldE", type[0] == '-' ? "n" : "", labs(strtol(type, 0, 0)));
	else if ((i = find(type)) >= 0 && types[i].letter)
		fputc(types[i].letter, to);
	else if (path(to, type))
		fputc('E', to);
}

char *type_lowered(const struct kernel *k)
{
	FILE *to;
	bool nested;

	if (k->c)
		return strdup(k->name);
	to = text_open();
	fputs("_Z", to);
	nested = path(to, k->name);
	if (k->narguments) {
		fputc('I', to);
		for (int i = 0; i < k->narguments; i++)
			argument(to, k->arguments[i]);
		fputc('E', to);
	}
	fputs(nested ? "Ev" : "v", to);
	return text_close(to);
}

char *type_symbol(const struct variable *v)
{
	const char *last = strrchr(v->name, ':');
	FILE *to;

	if (v->c || !last)
		return strdup(last ? last + 1 : v->name);
	to = text_open();
	fputs("_Z", to);
	path(to, v->name);
	fputc('E', to);
	return text_close(to);
}
