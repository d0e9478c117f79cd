"""Reading for people: pages and details as the API shows them; nothing here locks or writes."""
