// Shows the API's description. The description itself needs a token, so the page asks for one.
"use strict";

async function show(token) {
  const message = document.getElementById("message");
  const headers = { Authorization: `Bearer ${token}` };
  let response;
  try {
    response = await fetch("/openapi.json", { headers });
  } catch (error) {
    message.textContent = `The API does not answer: ${error.message}`;
    return;
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    message.textContent = `Refused (${response.status}): ${problem.detail || "no reason given"}`;
    return;
  }
  const spec = await response.json();
  // This viewer reads 3.0; nothing in our description needs more than its 3.0 reading to be shown.
  spec.openapi = "3.0.3";
  message.textContent = "Requests from this page carry the token.";
  SwaggerUIBundle({
    spec,
    dom_id: "#api",
    validatorUrl: null,
    requestInterceptor: (request) => {
      request.headers.Authorization = `Bearer ${token}`;
      return request;
    },
  });
}

document.getElementById("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  show(document.getElementById("token").value.trim());
});
