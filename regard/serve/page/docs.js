// The routes, from the server's own description.

import { askJson } from "./api.js";
import { make } from "./dom.js";
import "./theme.js";

/** A field's type in words. */
function kind(field, all) {
  if (field.$ref) return kind(all[field.$ref.split("/").at(-1)], all);
  if (field.anyOf) return [...new Set(field.anyOf.filter(one => one.type !== "null").map(one => kind(one, all)))].join(" or ") || "nothing";
  if (field.enum) return field.enum.map(value => JSON.stringify(value)).join(" or ");
  if (field.const !== undefined) return JSON.stringify(field.const);
  if (field.type === "array") return `a list of ${field.items ? kind(field.items, all) : "anything"}`;
  return { string: "text", integer: "a whole number", number: "a number", boolean: "true or false", object: "an object", null: "nothing" }[field.type] ?? "anything";
}

function fields(body, all) {
  const rows = Object.entries(body?.properties ?? {}).map(([name, field]) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, name), body.required?.includes(name) ? " (needed)" : ""),
    make("td.text", {}, kind(field, all)), make("td.text", {}, [field.description, field.default !== undefined && field.default !== null ? `usually ${JSON.stringify(field.default)}` : ""].filter(Boolean).join("; "))));
  return rows.length ? make("div.scroll", {}, make("table.numbers.wide", {}, make("tbody", {}, rows))) : null;
}

const told = await askJson("/openapi.json").catch(fault => ({ paths: {}, fault: fault.message }));
const all = told.components?.schemas ?? {};
const routes = Object.entries(told.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, route]) => {
  const given = route.requestBody?.content?.["application/json"]?.schema;
  const body = given?.$ref ? all[given.$ref.split("/").at(-1)] : given;
  return make("section.route", {}, make("h2", {}, make("code", {}, `${method.toUpperCase()} ${path}`)), make("p", {}, route.description ?? route.summary ?? ""), fields(body, all));
}));
document.getElementById("routes").replaceChildren(...(routes.length ? routes : [make("p.hint", {}, told.fault ?? "no routes")]));
